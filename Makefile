# Two commands are enough on a fresh machine: `make demo` and `make test`.
.POSIX:
.SILENT:
.PHONY: help demo test test-all test-whole test-lab digests digests-record check-fast lint rules man-examples fuzz mutants absences kills explore matrix bench bench-brokers report-demo spark-bundle dist zipapp image audit env kafka-libs older-kafka-libs kafka-diff lake-libs yarn-libs clean

BIN = .venv/bin
PYTEST_ARGS =
FUZZ_SECONDS = 60
MUTANTS = 20000
EXPLORE_SEEDS = 200
EXPLORE_SECONDS = 3600
BENCH_BROKERS =
RELEASE = 4.4.0

help:
	echo "make demo    the main jobs of eoctl, shown on a real broker's directory"
	echo "make test    the standard tests and the linters: ten minutes on two processors"
	echo "make test-all  all tests, all kills, 20,000 mutants, new random data: 5 to 6 hours"
	echo "make test-lab  the tests of eoctl sim and eoctl bench alone"
	echo "make digests  compare thousands of outputs with their record: 10 minutes"
	echo "make digests-record  record the outputs again after a change on purpose"
	echo "make check-fast  the linters, and the tests of modules that differ from the branch main"
	echo "make lint    the linters alone"
	echo "make rules   docs/rules, written from the rules in the code"
	echo "make fuzz    fuzzing guided by coverage, FUZZ_SECONDS=$(FUZZ_SECONDS) for each parser"
	echo "make mutants MUTANTS=$(MUTANTS) damaged logs: no good batch may be lost in silence"
	echo "make absences  32,000 logs that lost whole batches: each loss must be reported, an hour"
	echo "make kills   the tests that kill programs, with more kills than in make test"
	echo "make explore  EXPLORE_SEEDS=$(EXPLORE_SEEDS) new scenarios in each cell of the guarantee matrix that loses nothing,"
	echo "             for EXPLORE_SECONDS=$(EXPLORE_SECONDS) at most"
	echo "make matrix  compares all readers on every damaged directory"
	echo "make report-demo  reports of the golden directories, with pictures, in .cache/report-demo"
	echo "make bench   the measurements of docs/performance.md, into .cache/bench.md"
	echo "make bench-brokers  scenarios of eoctl bench on real brokers, into .cache/bench-brokers.md"
	echo "make dist    what is released, from the last commit: sdist, wheel, eoctl.pyz, deb, sums, SBOM"
	echo "make zipapp  dist/eoctl.pyz alone: one file for hosts that have only Python 3.11 to 3.13"
	echo "make image   a container image, with buildah or podman"
	echo "make audit   known weaknesses of the pinned packages, by pip-audit"
	echo "make spark-bundle  a file for spark-submit --py-files, in dist"
	echo "make older-kafka-libs  jars of older brokers, which some tests need"
	echo "make kafka-diff RELEASE=4.5.0  what a release has that our tables do not, by file"
	echo "make lake-libs  jars of Delta and Iceberg and their Spark, which some tests need"
	echo "make yarn-libs  the daemons of YARN, which some tests need"
	echo "make env     the environment .venv with everything in it"
	echo "make clean   remove all files that these targets made"

# Compiled here, as an installer does: otherwise each process would do it again where
# PYTHONDONTWRITEBYTECODE is set.
env:
	scripts/setup-env.sh all
	$(BIN)/python -m compileall -q -j 2 eoctl storage recovery

demo:
	scripts/setup-env.sh demo
	scripts/demo.sh

# The same tests each time, and the linters beside them; docs/testing.md says what test-all adds.
test:
	scripts/test.sh $(PYTEST_ARGS)

PYTEST = scripts/pytest.sh -n 2 --dist worksteal
# What runs on the native kernel where it is there runs on the numpy kernel, too.
# The judges run on this release, too. Those that need kafka-shell are left out there.
NEWEST_LIBS = .cache/kafka-libs-4.4.0
KERNEL_TESTS = tests/storage/kernels tests/cli/test_dump_segment.py tests/cli/test_dump_golden.py

test-all: test-whole mutants lint

# Without the jars of lakes or of YARN (no network) their tests are left out, and the end says so.
test-whole: env kafka-libs older-kafka-libs
	-$(BIN)/python -m tests.spark.lake_libs
	-$(BIN)/python -m tests.spark.yarn_libs
	EOCTL_TESTS=all EOCTL_KILLS=320 EOCTL_LEASE_KILLS=300 EOCTL_LEASE_SECONDS=20 \
		EOCTL_REQUIRE=java,broker $(PYTEST) --hypothesis-profile=all $(PYTEST_ARGS)
	EOCTL_TESTS=all EOCTL_KERNEL=numpy $(PYTEST) --hypothesis-profile=all -q $(KERNEL_TESTS)
	EOCTL_TESTS=all EOCTL_KAFKA_LIBS=$(NEWEST_LIBS) $(PYTEST) --hypothesis-profile=all -q tests/broker

test-lab: env
	$(PYTEST) --hypothesis-profile=ci tests/lab $(PYTEST_ARGS)

digests: env
	$(BIN)/python -m tests.digests

digests-record: env
	$(BIN)/python -m tests.digests --record

check-fast: lint
	names=$$($(BIN)/python -m tests.changed) && { [ -z "$$names" ] || \
		$(PYTEST) -q -x -m "not broker and not slow" $$names; }

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	! cargo fmt --version >/dev/null 2>&1 || cargo fmt --manifest-path native/Cargo.toml --check

rules: env
	$(BIN)/python -m tests.rule_pages

man-examples: env
	$(BIN)/python -m tests.help_examples
	$(BIN)/python -m tests.help_options
	$(BIN)/python -m tests.saved_help

kafka-libs:
	scripts/require-tool.sh java >/dev/null
	scripts/fetch-kafka-libs.sh

# Brokers of Kafka 3.3.2 to 4.2.0 and of 4.4.0, 55 MB each, for the tests that compare releases.
older-kafka-libs: env
	$(BIN)/python -m tests.kafka.older_releases

# Fetches the jars of that release; run it when one comes out.
kafka-diff: env
	$(BIN)/python -m tests.kafka.kafka_diff $(RELEASE)

# Spark 4.1, Delta Lake and Iceberg, 600 MB, for tests/spark/test_tables.py.
lake-libs: env
	$(BIN)/python -m tests.spark.lake_libs

# A ResourceManager and a NodeManager of Hadoop 3.5, 90 MB, for tests/spark/test_yarn.py.
yarn-libs: env
	$(BIN)/python -m tests.spark.yarn_libs

# There is an atheris for some versions of Python only; without it fuzzing is slower.
fuzz: env
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input \
		--constraint constraints.txt atheris </dev/null || :
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS)

# The seed is printed; python -m tests.damage.mutants --seed S --only N runs one of them again.
mutants: env
	$(BIN)/python -m tests.damage.mutants --count $(MUTANTS) --jobs 2

# EOCTL_ABSENCES=FIRST-LAST in the environment of pytest runs some seeds alone.
absences: env
	EOCTL_TESTS=all EOCTL_ABSENCES=all $(PYTEST) \
		tests/damage/test_absences.py tests/damage/test_other_absences.py

kills: env
	EOCTL_KILLS=320 EOCTL_LEASE_KILLS=300 EOCTL_LEASE_SECONDS=20 $(PYTEST) \
		--dist worksteal tests/crash/test_*_kills.py tests/storage/writing/test_producer_ids.py

# Goes on where the matrix that is shipped ends; Ctrl-C keeps what was found.
explore: env
	$(BIN)/python -m tests.lab.explored --seeds $(EXPLORE_SEEDS) --seconds $(EXPLORE_SECONDS)
	$(BIN)/python -m tests.lab.guarantee_page

matrix: env
	EOCTL_TESTS=all $(PYTEST) tests/matrix

# Needs Chromium for the pictures; docs/report.png is one of them.
report-demo: env
	scripts/report-demo.sh

bench: env kafka-libs
	$(BIN)/python -m bench

# All seven take an hour or more of two processors that do nothing else; what has ended is kept, and
# BENCH_BROKERS="--scenario 5" runs one of them again, "--scenario 0" none.
bench-brokers: env kafka-libs
	$(BIN)/python -m bench.real_brokers --write $(BENCH_BROKERS)

# See docs/spark.md.
spark-bundle: env
	$(BIN)/python -m eoctl.spark.bundle

dist:
	scripts/dist.sh

zipapp:
	scripts/dist.sh wheel zipapp

image:
	scripts/dist.sh wheel zipapp image

# Asks the index of Python's packages whether a pinned version has a known weakness.
audit:
	scripts/dist.sh audit

clean:
	rm -rf .venv .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
