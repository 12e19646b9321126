"""Engines over scripted cores, with the tiny tokenizer."""

import pytest

from tests.engine.pool_in_process import PoolInProcess
from tests.engine.stage import Stage
from tests.engine.tiny_tokenizer import write_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    write_tokenizer(folder)
    return folder


@pytest.fixture
def make_stage(folder):
    stages = []

    def make(*cores, **config):
        stage = Stage(folder, *cores, **config)
        stages.append(stage)
        stage.engine.start()
        return stage

    yield make
    for stage in stages:
        for core in stage.cores:
            core.answers_aborts = True
        stage.engine.close()


@pytest.fixture
def stage(make_stage):
    return make_stage()


@pytest.fixture
def make_real_engine(monkeypatch):
    """Return a function that starts an engine on the model at a path, with its core in this process.

    So are decoders and processors of media: each child imports torch and transformers for five seconds. Served models
    have children, and so have tests of the decoder.
    """
    from tests.engine.real_engine import RealEngine  # torch is large

    for user in ("engine.inputs.processor_child", "engine.inputs.media.decoder"):
        monkeypatch.setattr(f"{user}.KillablePool", PoolInProcess)

    made = []

    def make(path, **config):
        made.append(RealEngine(path, **config))
        return made[-1]

    yield make
    for engine in made:
        engine.close()
