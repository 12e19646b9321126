"""Answers that must have a form: limits, compiling in processes that may be killed, matchers that mask tokens in the core."""
