"""Public names; ``__init__.py`` imports each at its first use."""

from . import losses as losses, measures as measures, relaxations as relaxations
from .collections.texts import Texts as Texts
from .errors import NotFoundError as NotFoundError, UserError as UserError
from .evaluation.table import Table as Table
from .experiments.config import ExperimentConfig as ExperimentConfig
from .experiments.runner import experiment as experiment
from .features.letor import LetorData as LetorData
from .features.normalise import (
    QueryZScore as QueryZScore,
    ShiftedLog as ShiftedLog,
    SignedLog1p as SignedLog1p,
    Standardise as Standardise,
)
from .lists.concat import concat as concat
from .lists.data import ListsData as ListsData
from .lists.data import FoldsData as FoldsData
from .lists.sampling import Full as Full, Pairs as Pairs, PositivesNegatives as PositivesNegatives, Random as Random
from .lists.view import Lists as Lists
from .losses import (
    BCE as BCE,
    MSE as MSE,
    RMSE as RMSE,
    ApproxNDCG as ApproxNDCG,
    DirectMetric as DirectMetric,
    KLDivergence as KLDivergence,
    LambdaLoss as LambdaLoss,
    ListAP as ListAP,
    ListMLE as ListMLE,
    ListNet as ListNet,
    MarginMSE as MarginMSE,
    MinMax as MinMax,
    NeuralNDCG as NeuralNDCG,
    PairwiseHinge as PairwiseHinge,
    PairwiseSoftmax as PairwiseSoftmax,
    Ramp as Ramp,
    RankNet as RankNet,
    ReciprocalRank as ReciprocalRank,
    SmoothINDCG as SmoothINDCG,
    SoftmaxCE as SoftmaxCE,
    Term as Term,
    Terms as Terms,
    TwinSigmoidNDCG as TwinSigmoidNDCG,
    WassRank as WassRank,
)
from .models.load import Interpolated as Interpolated
from .models.load import load as load, load_model as load_model
from .models.text.cross_encoder import CrossEncoder as CrossEncoder
from .models.text.decoder import Decoder as Decoder, LoRA as LoRA
from .models.vectors.networks import MLP as MLP, ListMLP as ListMLP, SelfAttention as SelfAttention
from .models.vectors.trees import LightGBM as LightGBM, XGBoost as XGBoost
from .relaxations import (
    Approx as Approx,
    FastSoftSort as FastSoftSort,
    NeuralSort as NeuralSort,
    OptimalTransport as OptimalTransport,
    SmoothI as SmoothI,
    SoftSort as SoftSort,
    TwinSigmoid as TwinSigmoid,
)
from .retrieval.runs import as_run as as_run, read_run as read_run, write_run as write_run
from .selection.auto import auto as auto
from .selection.table import Selection as Selection
from .tasks.calibrate import calibrate as calibrate
from .tasks.evaluate import evaluate as evaluate
from .tasks.rerank_lists import rerank_lists as rerank_lists
from .tasks.retrieve import Search as Search, retrieve as retrieve
from .tasks.train import train as train
from .training.config import Optimization as Optimization, TrainConfig as TrainConfig
from .training.fit import Training as Training, fit as fit

__version__: str
