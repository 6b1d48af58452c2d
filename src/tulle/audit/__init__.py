"""Attacks on what is claimed: audits of randomizers, of private steps and of training runs."""

from typing import TYPE_CHECKING

from tulle.lazy_names import lazy_names

if TYPE_CHECKING:
    from tulle.audit.mechanism_audit import MechanismAudit, audit_randomizer
    from tulle.audit.one_run import OneRunConfig, OneRunResult, audit_canaries
    from tulle.audit.profile import ProfileAuditConfig, ProfileAuditResult, audit_profile
    from tulle.audit.step_audit import StepAudit, StepAuditConfig, audit_step
    from tulle.audit.training_audit import TrainingAudit, audit_training
    from tulle.audit.verbs import StepAudits, audit_mechanisms, audit_run, audit_steps

__all__ = [
    "MechanismAudit",
    "OneRunConfig",
    "OneRunResult",
    "ProfileAuditConfig",
    "ProfileAuditResult",
    "StepAudit",
    "StepAuditConfig",
    "StepAudits",
    "TrainingAudit",
    "audit_canaries",
    "audit_mechanisms",
    "audit_profile",
    "audit_randomizer",
    "audit_run",
    "audit_step",
    "audit_steps",
    "audit_training",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)
