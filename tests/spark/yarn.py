"""A real YARN on the loopback: a ResourceManager and a NodeManager, and no HDFS.

The NodeManager starts drivers and executors as containers, each in a directory of its own, as on any
host of a cluster. Files lie on the file system of this machine, where a cluster has HDFS.
"""

from __future__ import annotations

import os
import uuid
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from xml.sax.saxutils import escape

from eoctl.lab.bench.brokers import choose_ports
from tests.kafka.jars import tool
from tests.spark.cluster import start_daemon, wait_for
from tests.spark.left_over import MARK, wait_until_gone
from tests.spark.yarn_libs import YARN_LIBS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SERVER = "org.apache.hadoop.yarn.server"


class Yarn(NamedTuple):
    """A running YARN; `environment` is what spark-submit needs."""

    environment: dict[str, str]
    local: Path  # the working directories of containers are below
    containers: Path  # what they print: application, container, stdout and stderr


def _settings(directory: Path) -> dict[str, str]:
    manager = "yarn.resourcemanager"
    names = ("address", "scheduler.address", "resource-tracker.address", "admin.address")
    names = (*names, "webapp.address")
    ports = dict(zip(names, choose_ports(len(names), None), strict=True))
    return {
        "fs.defaultFS": "file:///",
        "hadoop.tmp.dir": f"{directory}/tmp",
        f"{manager}.hostname": "127.0.0.1",
        **{f"{manager}.{name}": f"127.0.0.1:{port}" for name, port in ports.items()},
        "yarn.nodemanager.hostname": "127.0.0.1",
        "yarn.nodemanager.address": "127.0.0.1:0",
        "yarn.nodemanager.localizer.address": "127.0.0.1:0",
        "yarn.nodemanager.webapp.address": "127.0.0.1:0",
        "yarn.nodemanager.local-dirs": f"{directory}/local",
        "yarn.nodemanager.log-dirs": f"{directory}/containers",
        "yarn.nodemanager.env-whitelist": f"JAVA_HOME,HADOOP_CONF_DIR,PATH,LANG,SPARK_LOCAL_IP,{MARK}",
        "yarn.nodemanager.resource.memory-mb": "6144",
        "yarn.nodemanager.resource.cpu-vcores": "4",
        "yarn.scheduler.minimum-allocation-mb": "128",
        # How much of this machine's disks and address space is in use is no concern of a test.
        "yarn.nodemanager.disk-health-checker.enable": "false",
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.scheduler.capacity.root.queues": "default",
        "yarn.scheduler.capacity.root.default.capacity": "100",
        "yarn.scheduler.capacity.maximum-am-resource-percent": "1",
    }


def _write_site(path: Path, settings: Mapping[str, str]) -> None:
    rows = "".join(
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>\n"
        for name, value in settings.items()
    )
    path.write_text(f"<configuration>\n{rows}</configuration>\n")


@contextmanager
def running_yarn(directory: Path) -> Iterator[Yarn]:
    """Start both, with everything that they write in a directory.

    At the end all of their processes are gone, those of containers too.

    Raises:
        RuntimeError: it does not come up, or something is left of it.
    """
    import pyspark

    mark = uuid.uuid4().hex
    java = Path(tool("java")).resolve()
    conf = directory / "conf"
    conf.mkdir()
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PYSPARK", "SPARK", "PYTEST", "HADOOP", "YARN"))
    }
    environment |= {
        MARK: mark,
        "JAVA_HOME": str(java.parents[1]),
        "HADOOP_CONF_DIR": str(conf),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    try:
        with ExitStack() as stack:

            def start(name: str, server: str, up: str) -> None:
                log = start_daemon(
                    stack, directory / f"{name}.log", environment, f"{conf}:{YARN_LIBS}/*",
                    f"{SERVER}.{server}", java=str(java),
                )  # fmt: skip
                wait_for(log, up)

            _write_site(conf / "core-site.xml", {})
            _write_site(conf / "yarn-site.xml", _settings(directory))
            (conf / "log4j.properties").write_text(
                "log4j.rootLogger=INFO,out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
                "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
                "log4j.appender.out.layout.ConversionPattern=%d %p %c{1}: %m%n\n"
            )
            start("resourcemanager", "resourcemanager.ResourceManager", "(Transitioned to active)")
            start("nodemanager", "nodemanager.NodeManager", "(Registered with ResourceManager)")
            yield Yarn(environment, directory / "local", directory / "containers")
    finally:
        left = wait_until_gone(mark)
    if left:
        raise RuntimeError(f"processes that are left: {left}")
