"""The public names, as type checkers read them; `__init__.py` imports each on first use."""

from vitreous import sklearn as sklearn
from vitreous.addons.names import *  # noqa: F403
from vitreous.api.checks import check_data as check_data
from vitreous.api.checks import doctor as doctor
from vitreous.api.checks import pack_data as pack_data
from vitreous.api.comparison import compare as compare
from vitreous.api.deployment import calibrate as calibrate
from vitreous.api.deployment import export as export
from vitreous.api.evaluation import evaluate as evaluate
from vitreous.api.features import embed as embed
from vitreous.api.features import probe as probe
from vitreous.api.inspection import attribute as attribute
from vitreous.api.inspection import inspect as inspect
from vitreous.api.models import convert as convert
from vitreous.api.models import describe as describe
from vitreous.api.models import draw as draw
from vitreous.api.models import push_to_hub as push_to_hub
from vitreous.api.prediction import predict as predict
from vitreous.api.predictor import Predictor as Predictor
from vitreous.api.pretraining import compare_recipes as compare_recipes
from vitreous.api.pretraining import list_recipes as list_recipes
from vitreous.api.pretraining import pretrain as pretrain
from vitreous.api.run import Run as Run
from vitreous.api.training import train as train
from vitreous.checkpoints.formats import list_families as list_families
from vitreous.checkpoints.formats import list_formats as list_formats
from vitreous.checkpoints.loading import load as load
from vitreous.checkpoints.pretrained_encoders import list_encoders as list_encoders
from vitreous.checkpoints.resizing import resize as resize
from vitreous.checkpoints.saving import save as save
from vitreous.errors import InputError as InputError
from vitreous.evaluation.native_aspect import NativeAspect as NativeAspect
from vitreous.inspection.capture import capture_attention as capture_attention
from vitreous.models.bit import BiT as BiT
from vitreous.models.bit import BiTConfig as BiTConfig
from vitreous.models.catalog import list_models as list_models
from vitreous.models.config import ViTConfig as ViTConfig
from vitreous.models.names import create as create
from vitreous.models.preprocessing import Preprocessing as Preprocessing
from vitreous.models.vit import ViT as ViT
from vitreous.tasks.pretraining.mae import MAE as MAE

__version__: str
