"""Engines over scripted cores, with the tiny tokenizer."""

import pytest

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
