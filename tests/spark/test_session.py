"""What Spark needs and how it is told; no JVM is started here."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from eoctl.spark import packages_root, session
from eoctl.spark.executors import SparkJobError, SparkUnavailableError
from eoctl.spark.session import (
    check_requirements,
    defaults,
    job_errors,
    parse_settings,
    worker_environment,
)
from storage.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is the whole PATH; a `java` can be put there."""
    pytest.importorskip("pyspark")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path / "java"


def write_java(path: Path, first_line: str, status: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{first_line}' >&2\nexit {status}\n")
    path.chmod(0o755)


def test_no_java(java: Path) -> None:
    with pytest.raises(SparkUnavailableError) as caught:
        check_requirements()
    assert caught.value.message == "Java 17 or later is not installed"
    assert "openjdk-17" in caught.value.next_step
    assert "every other command" in caught.value.next_step
    assert caught.value.exit_status == 3


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2"])
def test_java_that_is_too_old(java: Path, version: str) -> None:
    write_java(java, f'openjdk version "{version}" 2019-01-15')
    with pytest.raises(SparkUnavailableError, match="Spark needs Java 17 or later"):
        check_requirements()


@pytest.mark.parametrize("version", ["17.0.15", "21", "24-ea"])
def test_java_that_will_do(java: Path, version: str) -> None:
    write_java(java, f'openjdk version "{version}"')
    check_requirements()


def test_java_that_does_not_run(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_java(java, "broken", status=1)
    with pytest.raises(SparkUnavailableError, match="does not run"):
        check_requirements()
    write_java(java, 'openjdk version "17.0.15"')
    check_requirements()
    monkeypatch.setenv("JAVA_HOME", str(java.parent / "nowhere"))
    with pytest.raises(SparkUnavailableError, match="nowhere"):
        check_requirements()


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_no_pyspark(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setattr(session, "find_spec", lambda name: None if name == missing else name)
    with pytest.raises(SparkUnavailableError) as caught:
        check_requirements()
    assert caught.value.message == f"{missing} is not installed"
    assert f"{sys.executable} -m pip install" in caught.value.next_step


def test_pyspark_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_spec", lambda name: name)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "3.5.1")
    with pytest.raises(SparkUnavailableError, match=r"pyspark 3.5.1 is too old"):
        check_requirements()


@pytest.mark.parametrize("master", ["", "local[x]", "sprak://h:7077", "spark://", "YARN", "h:7077"])
def test_no_master(master: str) -> None:
    """Java is not started for it."""
    with pytest.raises(UsageError, match="no master of Spark"):
        check_requirements(master)


def test_settings() -> None:
    assert parse_settings(["a.b=c=d", " e =", "f=1"]) == [("a.b", "c=d"), ("e", ""), ("f", "1")]
    for text in ("a", "=a", " =", ""):
        with pytest.raises(UsageError):
            parse_settings([text])


def test_nothing_listens_beyond_the_loopback_by_default() -> None:
    for master in ("local", "local[*]", "local[2]"):
        chosen = defaults(master)
        assert chosen["spark.driver.host"] == chosen["spark.driver.bindAddress"] == "127.0.0.1"
        assert worker_environment(master)["PYSPARK_PYTHON"] == sys.executable
        assert chosen["spark.ui.enabled"] == "false"
        assert chosen["spark.python.unix.domain.socket.enabled"] == "true"
    cluster = defaults("spark://127.0.0.1:7077")
    assert "spark.driver.host" not in cluster
    assert cluster["spark.python.unix.domain.socket.enabled"] == "true"
    # The path of a container's temporary directory is longer than that of a socket may be.
    assert defaults("yarn")["spark.python.unix.domain.socket.enabled"] == "false"
    assert set(worker_environment("yarn")) == {"PYTHONPATH", "PYTHONSAFEPATH"}


def test_executors_of_a_cluster_get_no_path_of_this_machine() -> None:
    """They get the bundle; a directory of that name there would be anything."""
    root = str(packages_root())
    assert defaults("local[2]")["spark.executorEnv.PYTHONPATH"] == root
    for master in ("spark://h:7077", "yarn", "k8s://https://h:6443", "local-cluster[2,1,512]"):
        assert root not in defaults(master).values()


def test_workers_find_our_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("storage", "recovery", "eoctl"):
        assert (packages_root() / package / "__init__.py").exists()
    monkeypatch.setenv("PYTHONPATH", "mine")
    assert worker_environment("yarn")["PYTHONPATH"] == f"{packages_root()}{os.pathsep}mine"
    monkeypatch.delenv("PYTHONPATH")
    assert worker_environment("yarn")["PYTHONPATH"] == str(packages_root())


def test_results_that_are_too_large_say_what_to_raise() -> None:
    pytest.importorskip("pyspark")
    from pyspark.errors import PySparkException

    words = "Total size of serialized results of 9 tasks is bigger than spark.driver.maxResultSize"
    with pytest.raises(SparkJobError) as caught, job_errors():
        raise PySparkException(message=words)
    assert "--conf spark.driver.maxResultSize=8g" in caught.value.next_step
    with pytest.raises(SparkJobError) as caught, job_errors():
        raise PySparkException(message="something else")
    assert "EOCTL_DEBUG=1" in caught.value.next_step
