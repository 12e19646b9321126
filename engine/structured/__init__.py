"""Constraints on answers: limits, compilation in killable processes, and matchers that mask tokens in the core."""
