# The usual tasks. Everything goes through CMake presets; this only strings them together.
SHELL := /bin/bash
JOBS ?= $(shell nproc 2> /dev/null || sysctl -n hw.ncpu)
CPP_FILES = $(shell find torsor tests bench examples \( -name '*.h' -o -name '*.cpp' \) 2> /dev/null)
LOG = build/configure.log
TIDY ?= run-clang-tidy-14
FORMAT ?= clang-format-14
INPUTS ?= 10000000
FILES ?= /torsor/[a-z]+/.*\.cpp$$

.PHONY: all setup setup-tests build test sanitize fuzz compare format format-check tidy clean
all: build

setup:
	@scripts/setup.sh

# What the tests compare with comes besides.
setup-tests:
	@scripts/setup.sh --peers

# Configures quietly: the log is shown only when it fails.
define configure
@mkdir -p build && cmake --preset $(1) > $(LOG) 2>&1 || { cat $(LOG) >&2; exit 1; }
endef

## Build the program, build/release/bin/torsor, and the library for cmake --install build/release
build: setup
	$(call configure,release)
	@cmake --build build/release --parallel $(JOBS) --target torsor torsor_library >&2

## Build and run all tests, the sanitizers' included; ctest counts both builds together
test: setup-tests
	$(call configure,release)
	$(call configure,sanitize)
	@cmake --build build/release --parallel $(JOBS)
	@cmake --build build/sanitize --parallel $(JOBS)
	@echo 'subdirs(release sanitize)' > build/CTestTestfile.cmake
	@set -o pipefail; ctest --test-dir build --parallel $(JOBS) --output-on-failure $(ARGS) | tee build/ctest.log; \
	  failed=$$?; awk -f scripts/count_tests.awk build/ctest.log; exit $$failed

## Run all tests under the sanitizers, those with libtorch too: slow, so not part of make test
sanitize: setup
	$(call configure,sanitize-all)
	@cmake --build build/sanitize-all --parallel $(JOBS) >&2
	@ASAN_OPTIONS=detect_leaks=0 ctest --test-dir build/sanitize-all --parallel $(JOBS) --output-on-failure $(ARGS)

## Run the fuzzers of readers under the sanitizers, 10 million inputs each; fewer with INPUTS=number
fuzz: setup
	$(call configure,sanitize)
	@cmake --build build/sanitize --parallel $(JOBS) >&2
	@scripts/fuzz.sh $(INPUTS) $(JOBS)

## Compare encodings on the built-in text; a repeated call goes on where the last one stopped. More options: ARGS='...'
compare: setup
	$(call configure,release)
	@cmake --build build/release --parallel $(JOBS) --target torsor >&2
	@build/release/bin/torsor compare --profile quick --out torsor-compare --resume $(ARGS)

## Format every C++ file in place
format:
	@scripts/setup.sh --tools
	@$(FORMAT) -i $(CPP_FILES)

format-check:
	@scripts/setup.sh --tools
	@$(FORMAT) --dry-run --Werror $(CPP_FILES)

## Run the linter over the library, or over the files that match FILES='expression'
tidy:
	@scripts/setup.sh --tools
	$(call configure,tidy)
	@$(TIDY) -quiet -j $(JOBS) -p build/tidy -extra-arg=-Wno-unknown-warning-option '$(FILES)'

## Remove what was built; caches outside the checkout stay
clean:
	@rm -rf build
