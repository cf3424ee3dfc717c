"""How to read each figure, and what the paper saw in it."""

FILTERS = """ The first {count} principal components of the {filters} filters of {height}×{width} pixels,
most important first; together they hold {share:.0f} % of the filters' variance. Gray is zero. After long
training they look like waves and edges of growing fineness, a plausible basis for the fine structure of a
patch, as in the paper's Fig. 7 (left); noise means that the first layer has learned little.
"""

POSITIONS = """
One tile for each patch, laid out as in the image: the cosine similarity of its position embedding to that
of every other patch, from −1 (black) to 1 (yellow).{every} In the paper's Fig. 7 (center) the bright spot
wanders with the tile, and rows and columns show as a cross: the embeddings have learned that the image is
a plane, though nobody told them.
"""

ATTENTION = """
Each image (left), the attention of {readout} in the last layer, mean of the heads (center), and the
rollout of the attention of all layers (right; Abnar & Zuidema 2020, the method of the paper's Fig. 6).
Yellow is where most of it goes, black where least; each map is scaled to its own largest value. A model
that has learned the thing looks at the thing; bright corners or frames hint at a shortcut, or at patches
that are used as scratch space.
"""

CURVES = """
A loss that still falls at the end asks for more epochs, a flat one for another learning rate.{validation}
"""

VALIDATION = """ Training
images are augmented, so their loss may well stay above that of the validation images; a validation
curve that turns while the training curve goes on asks for more data, stronger augmentation or a smaller
model."""

BASELINES = """
All methods learned from the same images and were asked about the same {count} held-out ones. Bars are 95
% intervals (Wilson): where they overlap widely, this test set cannot tell the methods apart. Chosen by
cross-validation: {settings}.
"""

CONFUSION = """
Rows: what an image is; columns: what the model called it. The numbers count images; the depth of color
is their share of the row, so that rare classes show as clearly as common ones. Everything off the diagonal
is a mistake.
"""

CALIBRATION = """
Images are grouped by the probability that the model gave its answer; dots show how often answers of a
group were right. On the dashed line a probability of 0.8 means right in 80 % of the cases; below it the
model is too sure of itself, above it too shy. Gray bars: the share of images in each group; dots over low
bars rest on few images. Expected calibration error: {ece} (0 is perfect).
"""

AUGMENTED = """
The first {count} images of training, exactly as the model saw them: cropped, turned, mixed as the
configuration says. Can you still tell what they show? If not, the augmentation is too strong. Where
images of two classes are mixed, the share of each stands behind its name (shares below 5 % are left out).
"""

MISTAKES = """
The wrong answers of which the model was surest, of {wrong} wrong ones. Look here first: wrong labels in the
data, classes that overlap, and images unlike all others show up at once.
"""

HEADS = """
What {readout} attends to: a row for each layer, a column for each head, each map scaled to its own largest
value. Heads differ: some look at the thing, some at its edges, some always at one place.
"""

DISTANCE = """
A dot for each head: the distance in pixels between a patch and what it attends to, weighted by attention,
mean of all patches of {count} images. The line joins the layers' means. It plays the part of a
convolution's receptive field. In the paper's Fig. 7 (right) some heads of the first layers look across most
of the image already, others stay near, and deep layers look far; in hybrids the near heads are missing,
since the convolutions did their work.
"""

PATCH = """
The mean attention of all heads of each layer when this patch (framed in white) asks, on the first image,
each map scaled to its own largest value. For models that pool the patches' mean this is the figure to read,
since no single token answers for the image. Above, any patch can be asked, head by head.
"""

ENTROPY = """
100: a head looks at all tokens alike, 0: at a single one. Early heads often spread widely, as an average
over the image does; heads with very low entropy look at one place, at the next patch, or at a prefix
token, whatever the image shows.
"""

IMPORTANCE = """
How much the logit of the model's answer would change, to first order, without the head (Michel et al.
2019), on {count} images; 100 is the mean head. Heads below {limit} of it, here {prunable} of {all}, are
framed: the first candidates for pruning. Measure the accuracy before trusting it.
"""

RELEVANCE = """
Attention says where a token looks; this says what spoke for the class: attention weighted by the gradient
of the class's logit, positive parts only, carried through all layers (Chefer et al. 2021). Where attention
and evidence differ, believe the evidence.
"""

FEATURES = """
The patch tokens of the last layer, reduced to their three principal components over all these images and
shown as red, green and blue. Patches of one color have like features: after good training, parts of things
have a color of their own, across images.
"""

LENS = """
The final norm and the head applied to every layer as if it were the last (the logit lens); layer 0 is the
embedding. A steep rise shows the layer that decides; a long plateau shows layers that could be spared for
these images. Heads are trained for the last layer only, so low values early say little.
"""

ALIGNMENT = """
Centered kernel alignment of the mean of the patch tokens between layers, in %, over {count} images: 100
where two layers hold the same information up to rotation; layer 0 is the embedding. The estimate is
unbiased, so that few images do not make everything look alike. Vision Transformers are more uniform than
ResNets (Raghu et al. 2021); a block of near 100 at the end suggests layers that do little.
"""

NORMS = """
{unusual} of {all} patch tokens have an unusually high norm.{where} Large models that were trained long use
some patches of the background as scratch space; such tokens spoil attention maps and dense features, and
register tokens cure it (Darcet et al. 2024). A second hump at the right is the sign.
"""

EXPLORER = """
Choose an image, a layer, a head. At first {readout} asks, whose row of the attention the head reads; click
on a patch to see what that patch attends to. Below, the same question to all heads: a row for each layer, a
column for each head; click on one to enlarge it. Each map is scaled to its own largest value.{left_out}
"""
