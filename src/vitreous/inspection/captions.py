"""How to read each figure, and what the paper saw in it."""

FILTERS = """ The first {count} principal components of the {filters} filters of {height}×{width} pixels,
most important first; together they hold {share:.0f} % of the filters' variance. Grey is zero. After long
training they look like waves and edges of growing fineness, a plausible basis for the fine structure of a
patch, as in the paper's Fig. 7 (left); noise means that the first layer has learned little.
"""

POSITIONS = """
One tile for each patch, laid out as in the picture: the cosine similarity of its position embedding to that
of every other patch, from −1 (black) to 1 (yellow).{every} In the paper's Fig. 7 (centre) the bright spot
wanders with the tile, and rows and columns show as a cross: the embeddings have learned that the picture is
a plane, though nobody told them.
"""

ATTENTION = """
Each picture (left), the attention of {readout} in the last layer, mean of the heads (centre), and the
rollout of the attention of all layers (right; Abnar & Zuidema 2020, the method of the paper's Fig. 6).
Yellow is where most of it goes, black where least; each map is scaled to its own largest value. A model
that has learned the thing looks at the thing; bright corners or frames hint at a shortcut, or at patches
that are used as scratch space.
"""

CURVES = """
Training pictures are augmented, so their loss may well stay above that of the validation pictures. A curve
that still falls at the end asks for more epochs; a validation curve that turns while the training curve
goes on asks for more data, stronger augmentation or a smaller model; a flat one for another learning rate.
"""

BASELINES = """
All methods learned from the same pictures and were asked about the same {count} held-out ones. Bars are 95
% intervals (Wilson): where they overlap widely, this test set cannot tell the methods apart. Chosen by
cross-validation: {settings}.
"""

CONFUSION = """
Rows: what a picture is; columns: what the model called it. The numbers count pictures; the depth of colour
is their share of the row, so that rare classes show as clearly as common ones. Everything off the diagonal
is a mistake.
"""

CALIBRATION = """
Pictures are grouped by the probability that the model gave its answer; dots show how often answers of a
group were right. On the dashed line a probability of 0.8 means right in 80 % of the cases; below it the
model is too sure of itself, above it too shy. Grey bars: the share of pictures in each group; dots over low
bars rest on few pictures. Expected calibration error: {ece} (0 is perfect).
"""

MISTAKES = """
The wrong answers of which the model was surest, of {wrong} wrong ones. Look here first: wrong labels in the
data, classes that overlap, and pictures unlike all others show up at once.
"""
