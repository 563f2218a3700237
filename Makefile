# Builds and installs dlease; `make` alone builds both libraries.
#
#   make                        target/release/libdlease.so and libdlease.a
#   make install PREFIX=/usr/local DESTDIR=     (and uninstall)
#   make demo                   two languages fight for one lock
#   make test                   everything, on MariaDB and MySQL
#   make test SERVERS=mariadb   leaves MySQL out
#   make test STEPS="c cpp"     some of its steps; their names are in tests/run
#   make test-long              the same with full durations
#   make bench                  the figures that the README quotes
#   make picture                docs/waiting.svg, from those
#   make lint, header, examples

PREFIX = /usr/local
DESTDIR =
SERVERS = mariadb mysql
STEPS =

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
# The ABI's number, as in build.rs; the crate's version is another matter.
SONAME := libdlease.so.0

# Whatever the user's own setting: the paths below are under target/.
export CARGO_TARGET_DIR := $(CURDIR)/target
# Where tests/setup puts Go if the machine has none that is new enough.
export PATH := $(or $(DLEASE_CACHE),$(HOME)/.cache/dlease)/go/bin:$(PATH)

LIBRARIES := target/release
STAGE := target/stage
WARNINGS := -Wall -Wextra -pedantic -Werror
# Found by the programs wherever the project's directory is moved to.
LINK := -Ltarget/release -ldlease -Wl,-rpath,'$$ORIGIN/../../release'

.PHONY: all shared static lint header examples examples-go examples-rust stage install uninstall \
	demo test test-long bench picture

# One cargo call for each library: beside an rlib or each other cargo applies no
# LTO, without a word. (`cargo build --release` puts such ones in the place of
# these; tests/abi/check tells.) It makes no link by the soname either, which
# programs that are linked against target/release look for.
all: shared static

shared:
	cargo rustc --quiet --release --locked --lib --crate-type cdylib
	ln -sf libdlease.so $(LIBRARIES)/$(SONAME)

static: shared
	cargo rustc --quiet --release --locked --lib --crate-type staticlib

lint:
	cargo fmt --check
	cargo clippy --quiet --locked --all-targets -- -D warnings
	RUSTDOCFLAGS=-Dwarnings cargo doc --quiet --locked --no-deps

# Written only when it is there in full: a failure leaves the old one.
header:
	@mkdir -p target
	cargo run --quiet --locked --example make-header > target/dlease.h
	cp target/dlease.h include/dlease.h

# ---- examples, into target/examples/LANGUAGE; Python's run as they are ----

PROGRAMS := hold contend
C_EXAMPLES := $(PROGRAMS:%=target/examples/c/%)
CPP_EXAMPLES := $(PROGRAMS:%=target/examples/cpp/%)

examples: $(C_EXAMPLES) $(CPP_EXAMPLES) examples-rust examples-go

$(C_EXAMPLES): target/examples/c/%: examples/c/%.c include/dlease.h | shared
	@mkdir -p $(@D)
	$(CC) -std=c11 $(WARNINGS) -O2 -g -Iinclude $< -o $@ $(LINK)

$(CPP_EXAMPLES): target/examples/cpp/%: examples/cpp/%.cpp include/dlease.h include/dlease.hpp | shared
	@mkdir -p $(@D)
	$(CXX) -std=c++17 $(WARNINGS) -O2 -g -Iinclude $< -o $@ $(LINK)

# Not optimised: that would build the whole library once more.
examples-rust:
	cargo build --quiet --locked $(PROGRAMS:%=--example %)
	@mkdir -p target/examples/rust
	cp $(PROGRAMS:%=target/debug/examples/%) target/examples/rust/

examples-go: stage
	@mkdir -p target/examples/go
	cd examples/go && PKG_CONFIG_PATH=$(CURDIR)/$(STAGE)/lib/pkgconfig \
		CGO_LDFLAGS='-Wl,-rpath,$$ORIGIN/../../release' \
		go build -o $(CURDIR)/target/examples/go/ ./...

# What the Go module is built against.
stage:
	$(MAKE) --no-print-directory install PREFIX=$(CURDIR)/$(STAGE) DESTDIR= > /dev/null

# ---- install ----

ROOT = $(DESTDIR)$(PREFIX)
SHARED := lib/libdlease.so.$(VERSION)
LINKS := lib/$(SONAME) lib/libdlease.so
HEADERS := include/dlease.h include/dlease.hpp
METADATA := lib/pkgconfig/dlease.pc lib/cmake/dlease/dleaseConfig.cmake \
	lib/cmake/dlease/dleaseConfigVersion.cmake
FILL_IN := sed -e 's/@VERSION@/$(VERSION)/' -e 's/@SONAME@/$(SONAME)/'

# Under sudo there may be no cargo: then it takes what was built before.
install: $(if $(shell command -v cargo),all)
	install -d $(sort $(dir $(addprefix $(ROOT)/,$(SHARED) $(HEADERS) $(METADATA))))
	install -m 755 $(LIBRARIES)/libdlease.so $(ROOT)/$(SHARED)
	for link in $(LINKS); do ln -sf $(notdir $(SHARED)) $(ROOT)/$$link; done
	install -m 644 $(LIBRARIES)/libdlease.a $(ROOT)/lib/
	install -m 644 $(HEADERS) $(ROOT)/include/
	for file in $(METADATA); do \
		$(FILL_IN) packaging/$${file##*/}.in > $(ROOT)/$$file && chmod 644 $(ROOT)/$$file || exit 1; \
	done
	$(if $(DESTDIR),,@ldconfig 2> /dev/null || true)

uninstall:
	rm -f $(addprefix $(ROOT)/,$(SHARED) $(LINKS) lib/libdlease.a $(HEADERS) $(METADATA))
	rmdir --ignore-fail-on-non-empty $(ROOT)/lib/cmake/dlease

# ---- tests ----

demo:
	tests/setup demo
	$(MAKE) --no-print-directory target/examples/c/hold
	examples/demo

test:
	SERVERS="$(SERVERS)" tests/run $(STEPS)

test-long:
	DLEASE_LONG=1 SERVERS="$(SERVERS)" tests/run $(STEPS)

bench:
	SERVERS="$(SERVERS)" tests/run setup build stage bench

# docs/waiting.svg from what `make bench` has measured last.
picture:
	target/venv/bin/python -m pip install --quiet 'matplotlib>=3.10,<4'
	target/venv/bin/python benches/picture.py
