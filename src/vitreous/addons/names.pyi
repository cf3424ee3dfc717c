"""The public names of the add-ons, as type checkers read them: those in `names` of each `ADDON`."""

from vitreous.addons.learn_page.api import learn as learn
from vitreous.addons.optimize.api import optimize as optimize
from vitreous.addons.segmentation.model import Segmenter as Segmenter
from vitreous.addons.segmentation.model import SegmenterConfig as SegmenterConfig
from vitreous.addons.serving.api import serve as serve
from vitreous.addons.studies.api import list_studies as list_studies
from vitreous.addons.studies.api import study as study
from vitreous.addons.text.api import train_translator as train_translator
from vitreous.addons.text.api import translate as translate
from vitreous.addons.text.config import TransformerConfig as TransformerConfig
from vitreous.addons.text.models import Reader as Reader
from vitreous.addons.text.models import Translator as Translator
from vitreous.addons.text.transformer import Captioner as Captioner
from vitreous.addons.text.transformer import Transformer as Transformer
