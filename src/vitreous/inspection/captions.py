"""How to read each figure, and what the paper shows in it."""

FILTERS = """ The first {count} principal components of the {filters} filters of {height}×{width} pixels,
most important first; together they explain {share:.0f} % of the filters' variance. Gray is zero. After long
training they look like waves and edges of increasing frequency, a plausible basis for the fine structure of a
patch, as in the paper's Fig. 7 (left); noise means that the first layer has learned little.
"""

POSITIONS = """
One tile per patch, laid out as in the image: the cosine similarity of its position embedding to that
of every other patch, from −1 (black) to 1 (yellow).{every} In the paper's Fig. 7 (center) the bright spot
moves with the tile, and rows and columns appear as a cross: the embeddings have learned the 2-D layout of
the patches.
"""

ATTENTION = """
Each image (left), the attention of {readout} in the last layer, mean of the heads (center), and the
rollout of the attention of all layers (right; Abnar & Zuidema 2020, the method of the paper's Fig. 6).
Yellow is most, black least; each map is scaled to its own maximum. A well-trained model attends to the
object; bright corners or frames suggest a shortcut, or patches that are used as scratch space.
"""

CURVES = """
If the loss is still falling at the end, train longer; if it is flat, try another learning rate.{validation}
"""

VALIDATION = """ Training
images are augmented, so their loss may well stay above the validation loss; a validation loss that rises
while the training loss still falls is overfitting: use more data, stronger augmentation or a smaller
model."""

BASELINES = """
All methods were trained on the same images and evaluated on the same {count} held-out ones. Bars are 95
% confidence intervals (Wilson): where they overlap widely, this test set cannot separate the methods. Chosen
by cross-validation: {settings}.
"""

CONFUSION = """
Rows: true class; columns: predicted class. The numbers count images; the depth of color is their share of
the row, so that rare classes are as visible as common ones. Everything off the diagonal is an error.
"""

CALIBRATION = """
Images are grouped by the probability that the model gave its prediction; dots show how often the predictions
of a group were correct. On the dashed line a probability of 0.8 means correct in 80 % of the cases; below it
the model is overconfident, above it underconfident. Gray bars: the share of images in each group; dots over
low bars rest on few images. Expected calibration error: {ece} (0 is perfect).
"""

AUGMENTED = """
The first {count} training images, exactly as the model saw them: cropped, flipped, mixed as the
configuration says. Can you still recognize them? If not, the augmentation is too strong. Where
images of two classes are mixed, the share of each follows its name (shares below 5 % are left out).
"""

MISTAKES = """
The incorrect predictions with the highest probability, of {wrong} incorrect ones. Look here first: wrong
labels in the data, overlapping classes and out-of-distribution images show up at once.
"""

PER_CLASS = """
Precision: the share of the images predicted as this class that are correct. Recall: the share of the images
of this class that were found. F1: their harmonic mean. Classes with few images have uncertain scores.
"""

AVERAGE_PRECISION = """
Average precision: how well the images that show the class are ranked before those that do not.
"""

HEADS = """
What {readout} attends to: a row per layer, a column per head, each map scaled to its own
maximum. Heads differ: some attend to the object, some to its edges, some always to one position.
"""

DISTANCE = """
A dot per head: the distance in pixels between a patch and what it attends to, weighted by attention, mean
over all patches of {count} images. The line joins the layers' means. The mean attention distance is
comparable to the receptive field of a convolution. In the paper's Fig. 7 (right) some heads of the first
layers attend to most of the image already, others stay local, and deep layers attend widely; in hybrids the
local heads are missing, since the convolutions replace them.
"""

PATCH = """
The mean attention over all heads of each layer with this patch (framed in white) as the query, on the first
image, each map scaled to its own maximum. For models with mean pooling this is the figure to read,
since no single token represents the image. Above, any patch can be the query, head by head.
"""

ENTROPY = """
100: a head attends to all tokens equally, 0: to a single one. Early heads often spread widely, as an average
over the image does; heads with very low entropy attend to one position, to the next patch, or to a prefix
token, whatever the image shows.
"""

IMPORTANCE = """
How much the logit of the prediction would change, to first order, without the head (Michel et al.
2019), on {count} images; 100 is the mean head. Heads below {limit} of it, here {prunable} of {all}, are
framed: the first candidates for pruning. Measure the accuracy before pruning them.
"""

RELEVANCE = """
Attention shows where information flows; relevance shows what contributed to the class: attention weighted by
the gradient of the class's logit, positive parts only, propagated through all layers (Chefer et al. 2021).
Where the two differ, relevance is the better explanation.
"""

FEATURES = """
The patch tokens of the last layer, reduced to their first three principal components over all these images
and shown as red, green and blue. Patches of one color have similar features: after good training, parts of
objects have a color of their own, across images.
"""

LENS = """
The final norm and the head applied to every layer as if it were the last; layer 0 is the
embedding. A steep rise shows the layer that decides; a long plateau shows layers that these images may not
need. Heads are trained for the last layer only, so low values in early layers say little.
"""

ALIGNMENT = """
Centered kernel alignment (CKA) of the mean of the patch tokens between layers, in %, over {count} images: 100
where two layers hold the same information up to rotation and scale; layer 0 is the embedding. The estimate is
unbiased, so that a few images do not make all layers look similar. Vision Transformers are more uniform than
ResNets (Raghu et al. 2021); a block of near 100 at the end suggests layers that do little.
"""

NORMS = """
{unusual} of {all} patch tokens have an unusually high norm.{where} Large models that were trained long use
some background patches as scratch space; such tokens degrade attention maps and dense features, and
register tokens prevent them (Darcet et al. 2024). A second mode at the right of the histogram is the sign.
"""

EXPLORER = """
Choose an image, a layer, a head. Initially the query is {readout} (what the classifier reads); click
on a patch to see what that patch attends to. Below, the same query for all heads: a row per layer, a
column per head; click on one to enlarge it. Each map is scaled to its own maximum.{left_out}
"""

SEGMENTATION_CURVES = """
Loss: mean cross-entropy per pixel. Mean IoU during training is that of single batches, which is noisy; the
validation mean IoU is over all validation images. Pixel accuracy includes the background, which is easy.
"""

IOU = """
Intersection over union: of the pixels that belong to a class or were predicted as it, the share that are
both. The line is the mean, {mean}. {without}
"""

PIXEL_CONFUSION = """
Rows: true class of a pixel; columns: predicted class; each row sums to 100 %. Numbers in percent, those
below half a percent omitted.
"""

MASKS = """
Held-out images, from the lowest of {count} by mean IoU to the highest. From left to right: the image,
the true mask, the predicted mask, and the errors (red; gray is ignored in the evaluation).
"""

PREDICTED_MASKS = "The image, and the predicted class of each pixel."

CLASS_ATTENTION = """
The mask Transformer carries an embedding of each class through its layers, together with the patches. Each
map is the attention of one class embedding to the patches in the last of these layers, mean of its heads.
Shown are the classes with the most predicted pixels.
"""

RECONSTRUCTION = """Held-out images. In each row: the image, the input of the model (masked patches in the
mean color), and the masked patches as the model reconstructs them. Reconstructions are blurred where several
contents are possible, since the loss is minimized by their mean. A reconstruction that ignores the visible
patches means that the model has not learned yet."""

CORRUPTION = """ Of the masked patches, the model saw a tenth unchanged and a tenth as another patch; this is
not shown."""

VIEWS = """
Held-out images. In each row: the image, a global crop, and a local crop. The student has to predict from the
local crop what the teacher outputs for the global one.
"""

TEXT_CURVES = """
Loss: mean cross-entropy per token; with label smoothing it does not reach 0. Token accuracy: given the
correct tokens before each, so it is higher than the accuracy of whole texts. If the loss is still falling at
the end, train longer.
"""

TOKENS = """
The cross-attention of the decoder to the image's patches for each written token, mean of the heads of the
last layer. Bright is high.
"""
