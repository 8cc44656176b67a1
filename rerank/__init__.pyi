"""Public names; ``__init__.py`` imports each at its first use."""

from . import losses as losses
from . import measures as measures
from . import relaxations as relaxations
from .collections.in_memory import Texts as Texts
from .errors import NotFoundError as NotFoundError
from .errors import UserError as UserError
from .evaluation.selection import Selection as Selection
from .evaluation.table import Table as Table
from .experiments.config import ExperimentConfig as ExperimentConfig
from .experiments.runner import experiment as experiment
from .features.letor import LetorData as LetorData
from .features.normalise import (
    QueryZScore as QueryZScore,
)
from .features.normalise import (
    ShiftedLog as ShiftedLog,
)
from .features.normalise import (
    SignedLog1p as SignedLog1p,
)
from .features.normalise import (
    Standardise as Standardise,
)
from .lists.concat import concat as concat
from .lists.data import ListsData as ListsData
from .lists.folds import FoldsData as FoldsData
from .lists.sampling import Full as Full
from .lists.sampling import Pairs as Pairs
from .lists.sampling import PositivesNegatives as PositivesNegatives
from .lists.sampling import Random as Random
from .lists.view import Lists as Lists
from .losses import (
    BCE as BCE,
)
from .losses import (
    MSE as MSE,
)
from .losses import (
    RMSE as RMSE,
)
from .losses import (
    ApproxAP as ApproxAP,
)
from .losses import (
    ApproxMRR as ApproxMRR,
)
from .losses import (
    ApproxNDCG as ApproxNDCG,
)
from .losses import (
    ApproxP as ApproxP,
)
from .losses import (
    DirectMetric as DirectMetric,
)
from .losses import (
    FastSoftSortNDCG as FastSoftSortNDCG,
)
from .losses import (
    KLDivergence as KLDivergence,
)
from .losses import (
    LambdaLoss as LambdaLoss,
)
from .losses import (
    ListAP as ListAP,
)
from .losses import (
    ListMLE as ListMLE,
)
from .losses import (
    ListNet as ListNet,
)
from .losses import (
    MarginMSE as MarginMSE,
)
from .losses import (
    MinMax as MinMax,
)
from .losses import (
    NeuralNDCG as NeuralNDCG,
)
from .losses import (
    OptimalTransportNDCG as OptimalTransportNDCG,
)
from .losses import (
    PairwiseHinge as PairwiseHinge,
)
from .losses import (
    PairwiseSoftmax as PairwiseSoftmax,
)
from .losses import (
    Ramp as Ramp,
)
from .losses import (
    RankNet as RankNet,
)
from .losses import (
    ReciprocalRank as ReciprocalRank,
)
from .losses import (
    SmoothIAP as SmoothIAP,
)
from .losses import (
    SmoothINDCG as SmoothINDCG,
)
from .losses import (
    SmoothIP as SmoothIP,
)
from .losses import (
    SoftmaxCE as SoftmaxCE,
)
from .losses import (
    SoftSortNDCG as SoftSortNDCG,
)
from .losses import (
    Term as Term,
)
from .losses import (
    Terms as Terms,
)
from .losses import (
    TwinSigmoidAP as TwinSigmoidAP,
)
from .losses import (
    TwinSigmoidNDCG as TwinSigmoidNDCG,
)
from .losses import (
    TwinSigmoidNERR as TwinSigmoidNERR,
)
from .losses import (
    TwinSigmoidP as TwinSigmoidP,
)
from .losses import (
    WassRank as WassRank,
)
from .models.interpolated import Interpolated as Interpolated
from .models.load import load as load
from .models.load import load_model as load_model
from .models.text.cross_encoder import CrossEncoder as CrossEncoder
from .models.text.decoder import Decoder as Decoder, LoRA as LoRA
from .models.vectors.attention import SelfAttention as SelfAttention
from .models.vectors.mlp import MLP as MLP
from .models.vectors.mlp import ListMLP as ListMLP
from .models.vectors.trees import LightGBM as LightGBM
from .models.vectors.trees import XGBoost as XGBoost
from .relaxations import (
    Approx as Approx,
)
from .relaxations import (
    FastSoftSort as FastSoftSort,
)
from .relaxations import (
    NeuralSort as NeuralSort,
)
from .relaxations import (
    OptimalTransport as OptimalTransport,
)
from .relaxations import (
    SmoothI as SmoothI,
)
from .relaxations import (
    SoftSort as SoftSort,
)
from .relaxations import (
    TwinSigmoid as TwinSigmoid,
)
from .retrieval.runs import as_run as as_run
from .retrieval.runs import read_run as read_run
from .retrieval.runs import write_run as write_run
from .selection.auto import auto as auto
from .tasks.calibrate import calibrate as calibrate
from .tasks.evaluate import evaluate as evaluate
from .tasks.rerank_lists import rerank_lists as rerank_lists
from .tasks.retrieve import Search as Search
from .tasks.retrieve import retrieve as retrieve
from .tasks.train import train as train
from .training.config import Optimization as Optimization
from .training.config import TrainConfig as TrainConfig
from .training.fit import Training as Training
from .training.fit import fit as fit

__version__: str
