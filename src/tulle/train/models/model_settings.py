"""The models that steps can train, as one type for settings files."""

from tulle.train.models.factorization_machine import FactorizationMachine
from tulle.train.models.logistic_regression import LogisticRegression
from tulle.train.models.mlp import MLP

AnyModel = MLP | FactorizationMachine | LogisticRegression
