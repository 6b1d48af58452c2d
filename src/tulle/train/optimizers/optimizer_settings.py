"""The optimizers that steps can use, as one type for settings files."""

from tulle.train.optimizers.adam import Adam
from tulle.train.optimizers.rmsprop import RMSprop
from tulle.train.optimizers.sgd import SGD
from tulle.train.optimizers.yogi import Yogi

AnyOptimizer = SGD | Adam | RMSprop | Yogi
