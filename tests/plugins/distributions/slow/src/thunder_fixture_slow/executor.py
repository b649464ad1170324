"""An executor without claims."""

from thunder_core.executors import OperatorExecutor


def make(options):
    return OperatorExecutor("slow", ())
