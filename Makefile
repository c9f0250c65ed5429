# udnnmem: `make help` lists the targets. Every folder names its own sources in a
# module.mk, with the three functions below; nothing here knows a single file.
#
#   $(call library,NAME,SOURCES)                       build/lib/libNAME.a
#   $(call program,OUTPUT,SOURCES,LIBRARIES,LDFLAGS)    build/OUTPUT, with fmt (profiler/format) where it is used
#   $(call unit_test,NAME,SOURCES,LIBRARIES,LDFLAGS)    build/tests/unit-NAME (Catch2), run by `make test`, its sources compiled as one
#
# $(call together,SOURCES) in place of SOURCES: compiled eight at a time, which is what long lists are.
#
# A module adds what `make` builds to DEFAULT, suites of `make test` to TEST_SUITES (what they
# need to TEST_NEEDS), suites of `make check` alone to CHECK_SUITES, benchmarks to BENCHES.
# VARIANT=asan (with UBSan) or tsan builds everything again under build/asan, build/tsan; VARIANT=breakable a library whose
# rules can be taken out one at a time (shim/pager/rules.hpp) and whose own driver calls can fail (interpose/own_calls.hpp).
# All three walk the pager's invariants after every change (shim/pager/checked.hpp).

VARIANT ?=
BUILD := build
ROOT := $(CURDIR)
PREFIX ?= /usr/local
PYTHON ?= python3
VERSION := 0.1.0

CXX = g++
CC = gcc
OPTIMISE ?= -O2
SANITISE :=
ifeq ($(VARIANT),asan)
  # The driver's enumerations hold what the program gives, which is handed on as it comes.
  SANITISE := -fsanitize=address,undefined -fno-sanitize=enum -fno-omit-frame-pointer
  CPPFLAGS += -DUDNNMEM_CHECKED
else ifeq ($(VARIANT),tsan)
  SANITISE := -fsanitize=thread
  CPPFLAGS += -DUDNNMEM_CHECKED
else ifeq ($(VARIANT),breakable)
  CPPFLAGS += -DUDNNMEM_BREAKABLE -DUDNNMEM_CHECKED
else ifneq ($(VARIANT),)
  $(error VARIANT=$(VARIANT): expected asan, tsan or breakable)
endif
B := $(BUILD)$(if $(VARIANT),/$(VARIANT))

ifneq ($(word 2,$(ROOT)),)
  $(error $(ROOT): make cannot build in a path with spaces: move the tree)
endif

.DEFAULT_GOAL := all
SETUP_FREE_GOALS := help clean uninstall
GOALS := $(filter-out $(SETUP_FREE_GOALS),$(or $(MAKECMDGOALS),all))
ifneq ($(GOALS),)
  include $(BUILD)/config.mk
endif
# What only the tests need is asked for by goals that may build tests.
ifneq ($(filter-out all demo install staged tarball wheel,$(GOALS)),)
  include $(BUILD)/test-packages.mk
endif

CPPFLAGS += -I$(ROOT) $(if $(CUDA_HOME),-isystem $(CUDA_INCLUDE)) -DUDNNMEM_VERSION=\"$(VERSION)\"
CXXFLAGS += -std=c++20 $(OPTIMISE) -g1 -fPIC -fvisibility=hidden -pthread -Wall -Wextra -Wno-missing-field-initializers -Wno-restrict $(SANITISE)
CFLAGS += -std=c11 $(OPTIMISE) -g1 -fPIC -fvisibility=hidden -pthread -Wall -Wextra $(SANITISE)
LINK = $(CCACHE) $(CXX) $(SANITISE) -pthread
# For what is shipped: these come from libhost.a (shim/host/older_glibc.c), not from the glibc it is built with. What nothing
# reaches is left out: an eighth of what is downloaded, most of it the standard library's.
COMMA := ,
SHIPPED := $(addprefix -Wl$(COMMA)-u$(COMMA),arc4random _dl_find_object __isoc23_strtol __isoc23_strtoll __isoc23_strtoull __isoc23_sscanf) $(if $(VARIANT),,-Wl$(COMMA)--gc-sections)

DEFAULT :=
TEST_SUITES :=
TEST_NEEDS :=
CHECK_SUITES :=
CHECK_NEEDS :=
BENCHES :=

# VARIANT=breakable compiles what sees its switches, by what the build without a variant wrote down, and takes the rest from there.
ifeq ($(VARIANT),breakable)
  BREAKABLE := $(patsubst $(BUILD)/obj/%.d,%,$(shell grep -rlE --include='*.d' 'shim/pager/(rules|checked)\.hpp|interpose/own_calls\.hpp' $(BUILD)/obj))
  ifeq ($(BREAKABLE),)
    $(error VARIANT=breakable: $(BUILD)/obj is empty: run `make` first)
  endif
endif
unchanged = $(if $(filter breakable,$(VARIANT)),$(filter-out $(BREAKABLE),$(1)))
objects = $(patsubst %,$(B)/obj/%.o,$(filter-out $(call unchanged,$(1)),$(1))) $(patsubst %,$(BUILD)/obj/%.o,$(call unchanged,$(1)))

define library_rule
$(B)/lib/lib$(1).a: $(call objects,$(2))
	@mkdir -p $$(@D)
	@rm -f $$@
	@$$(AR) rcs $$@ $$^
DEPENDENCIES += $(patsubst %,$(B)/obj/%.d,$(2))
endef
library = $(eval $(call library_rule,$(1),$(strip $(2))))

define program_rule
$(B)/$(1): $(call objects,$(2)) $(patsubst %,$(B)/lib/lib%.a,$(3) fmt)
	@mkdir -p $$(@D)
	@echo "  link  $$@"
	@$$(LINK) -o $$@ $(call objects,$(2)) -Wl,--start-group $(patsubst %,$(B)/lib/lib%.a,$(3) fmt) -Wl,--end-group $(4)
DEPENDENCIES += $(patsubst %,$(B)/obj/%.d,$(2))
endef
program = $(eval $(call program_rule,$(1),$(strip $(2)),$(strip $(3)),$(4)))

# Sources that include the same headers are compiled together, eight at a time: most of the time goes into headers, and one by
# one they took two to four times as long. $(call together,SOURCES) names the files that include them, for the functions above.
define sources_in_one
$(1): FORCE
	@mkdir -p $$(@D)
	@printf '#include "%s"\n' $(2) | cmp -s - $$@ || printf '#include "%s"\n' $(2) > $$@
endef
in_one = $(eval $(call sources_in_one,$(1),$(2)))$(1)
eight = $(if $(word 2,$(1)),$(eval TOGETHER += $(1))$(call in_one,$(BUILD)/gen/$(basename $(firstword $(1)))+$(words $(wordlist 2,8,$(1))).cpp,$(1)),$(1))
TOGETHER :=
together = $(if $(1),$(call eight,$(wordlist 1,8,$(1))) $(call together,$(wordlist 9,$(words $(1)),$(1))))

# The standard library's headers, which take GCC a second or two in each source that names some of them, are compiled once for
# all, and so is the test framework's for the unit tests. Not under ccache, which as it comes keeps nothing that uses them.
P := $(BUILD)$(if $(filter asan tsan,$(VARIANT)),/$(VARIANT))/obj
STANDARD := $(patsubst %,'<%>',algorithm array atomic bit charconv chrono cmath condition_variable deque filesystem fstream functional iterator map memory mutex optional random set span sstream string string_view thread unordered_map unordered_set utility vector)
FRAMEWORK := $(P)/tests/catch.hpp
define compiled_once
$(1).gch: $(3)
	@mkdir -p $$(@D)
	@echo "  c++   $(1)"
	@printf '#include %s\n' $(4) > $(1)
	@$$(CXX) $$(CPPFLAGS) $$(CXXFLAGS) $(2) -MMD -MP -MF $(1).d -MT $$@ -x c++-header -o $$@ $(1)
DEPENDENCIES += $(1).d
endef
DEPENDENCIES :=
$(eval $(call compiled_once,$(P)/standard-O2.hpp,,,$(STANDARD)))
$(eval $(call compiled_once,$(P)/standard-Og.hpp,-Og,,$(STANDARD)))
$(eval $(call compiled_once,$(FRAMEWORK),-Og,tests/catch.hpp,$(STANDARD) '"tests/catch.hpp"'))
STANDARD_ONCE := $(if $(CCACHE),,$(P)/standard-O2.hpp $(P)/standard-Og.hpp)
once = $(addprefix -include ,$(filter %/standard$(or $(1),-O2).hpp,$(STANDARD_ONCE)))
define begins_with_framework
$(1): $(FRAMEWORK).gch
$(1): private once = -include $(FRAMEWORK)
endef

unit_test = $(eval $(call begins_with_framework,$(B)/obj/$(BUILD)/gen/tests/unit-$(1).cpp.o))$(call program,tests/unit-$(1),$(call in_one,$(BUILD)/gen/tests/unit-$(1).cpp,$(2)),$(3) catch_main,$(4))$(eval TEST_SUITES += $(B)/tests/unit-$(1))$(eval TEST_NEEDS += $(B)/tests/unit-$(1))

ifneq ($(filter-out $(SETUP_FREE_GOALS),$(or $(MAKECMDGOALS),all)),)
include $(sort $(wildcard */module.mk */*/module.mk */*/*/module.mk))
endif

# Where the sources in a file that was generated lie.
source = $(patsubst $(BUILD)/gen/%,%,$(1))

# What takes longer to compile than it ever runs; and the library that is broken on purpose.
QUICK := $(addsuffix %,shim/cli/ tests/catch_main tests/e2e/ tests/gpu/ tests/interpose/ tests/policy/ tests/workloads/replays/ tests/unit-) $(if $(filter breakable,$(VARIANT)),$(BREAKABLE))

quick = $(if $(filter $(QUICK),$(call source,$(1)) $(1)),-Og)
compile = $(CXX) $(CPPFLAGS) $(CXXFLAGS) $(call quick,$(1)) $(FLAGS_$(subst /,_,$(dir $(call source,$(1)))))

$(B)/obj/%.cpp.o: %.cpp | $(addsuffix .gch,$(STANDARD_ONCE))
	@mkdir -p $(@D)
	@echo "  c++   $<"
	@$(CCACHE) $(call compile,$<) $(call once,$(call quick,$<)) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

$(B)/obj/%.c.o: %.c
	@mkdir -p $(@D)
	@echo "  cc    $<"
	@$(CCACHE) $(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

# Each source says what it needs: it compiles alone, too, with nothing included before it. `make check` sees to it.
ALONE := $(patsubst %,$(B)/alone/%.ok,$(sort $(TOGETHER) $(filter-out $(BUILD)/%,$(filter %.cpp,$(DEPENDENCIES:$(B)/obj/%.d=%)))))
DEPENDENCIES += $(ALONE:.ok=.d)
alone: $(ALONE)
$(ALONE): $(B)/alone/%.ok: % | $(DEFAULT)
	@mkdir -p $(@D)
	@echo "  alone $<"
	@$(call compile,$<) -fsyntax-only -MMD -MP -MF $(@:.ok=.d) -MT $@ $<
	@touch $@

-include $(DEPENDENCIES)

$(BUILD)/config.mk: scripts/setup.sh
	@scripts/setup.sh $@
# One after the other also under `make -j`: packages are installed by one process at a time.
$(BUILD)/test-packages.mk: scripts/setup.sh | $(BUILD)/config.mk
	@scripts/setup.sh --tests
	@mkdir -p $(@D)
	@touch $@

all: $(DEFAULT) ## build the library, the tool, the software GPU and the workloads

test: all $(TEST_NEEDS) ## run the tests (within 20 minutes on 2 cores)
	@$(PYTHON) tests/run.py --build $(B) $(TEST_SUITES)

check: all alone browser $(TEST_NEEDS) $(CHECK_NEEDS) ## everything, at full length, also under ASan+UBSan and TSan (hours)
	@UDNNMEM_TEST_FULL=1 $(PYTHON) tests/run.py --build $(B) $(TEST_SUITES) $(CHECK_SUITES)
	@$(MAKE) --no-print-directory VARIANT=asan sanitised
	@$(MAKE) --no-print-directory VARIANT=tsan sanitised

# What opens the report's page; `make test` does without where it is missing.
browser:
	@scripts/setup.sh --browser

# Of a sanitised build: the unit tests, and random programs, traps, plans that change and lie, and replays with the library.
sanitised: $(filter $(B)/tests/unit-%,$(TEST_NEEDS)) $(B)/libudnnmem.so $(B)/udnnmem $(B)/softgpu/libcuda.so $(addprefix $(B)/workloads/,random traps detours digits-driver replays)
	@UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 LSAN_OPTIONS=suppressions=$(ROOT)/tests/e2e/leaks.txt:print_suppressions=0 $(PYTHON) tests/run.py --limit 7200 --build $(B) $(filter $(B)/tests/unit-%,$(TEST_SUITES)) $(addprefix tests/e2e/,random_programs.py traps/traps.py detours.py changing_plans.py lies.py random_replays.py replays.py)

test-real: all $(REAL_NEEDS) ## real frameworks under the library, at full length
	@UDNNMEM_TEST_FULL=1 $(PYTHON) tests/run.py --limit 28800 --build $(B) $(REAL_SUITES)

bench: all $(BUILD)/test-packages.mk $(BENCHES) ## measure; prints a table, writes build/bench.json
	@$(PYTHON) tests/bench/run.py --output $(BUILD)/bench.json $(BENCHES)

demo: all $(if $(filter 0,$(DEMO_TRANSFORMER)),,$(REAL_READY)) ## train two networks, one in Python, in 35 % of their device memory, on the software GPU if there is no card
	@scripts/demo/demo.sh

install: all ## install the library and the tool under PREFIX (default /usr/local), within DESTDIR if that is set
	install -d "$(DESTDIR)$(PREFIX)/bin" "$(DESTDIR)$(PREFIX)/lib/udnnmem-site"
	install -m 755 $(B)/udnnmem "$(DESTDIR)$(PREFIX)/bin/udnnmem"
	install -m 755 $(B)/libudnnmem.so $(B)/libudnnmem-hidden.so "$(DESTDIR)$(PREFIX)/lib/"
	install -m 644 $(SITE) "$(DESTDIR)$(PREFIX)/lib/udnnmem-site/sitecustomize.py"

uninstall: ## remove what install put there, with the same PREFIX and DESTDIR
	rm -f "$(DESTDIR)$(PREFIX)/bin/udnnmem" "$(DESTDIR)$(PREFIX)/lib/libudnnmem.so" "$(DESTDIR)$(PREFIX)/lib/libudnnmem-hidden.so" "$(DESTDIR)$(PREFIX)/lib/udnnmem-site/sitecustomize.py"
	rm -rf "$(DESTDIR)$(PREFIX)/lib/udnnmem-site/__pycache__"
	@[ ! -d "$(DESTDIR)$(PREFIX)/lib/udnnmem-site" ] || rmdir "$(DESTDIR)$(PREFIX)/lib/udnnmem-site"

# What is shipped is what is installed, without debug information. Linux on the machine's own architecture.
DIST := $(BUILD)/dist
ARCH := $(shell uname -m)
OLDEST_GLIBC := 2.34
staged: all
	@rm -rf $(DIST)/stage
	@$(MAKE) --no-print-directory -s -o all install PREFIX=/udnnmem-$(VERSION) DESTDIR=$(abspath $(DIST)/stage)
	@cp README.md LICENSE $(DIST)/stage/udnnmem-$(VERSION)/
	@strip --strip-unneeded $(DIST)/stage/udnnmem-$(VERSION)/bin/udnnmem $(DIST)/stage/udnnmem-$(VERSION)/lib/*.so

tarball: staged ## build/dist/udnnmem-VERSION-linux-ARCH.tar.gz: unpack it anywhere
	@tar -C $(DIST)/stage --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -czf $(DIST)/udnnmem-$(VERSION)-linux-$(ARCH).tar.gz udnnmem-$(VERSION)
	@ls -l $(DIST)/udnnmem-$(VERSION)-linux-$(ARCH).tar.gz

wheel: staged ## build/dist/udnnmem-VERSION-py3-none-manylinux_...whl: library and tool for pip
	@$(PYTHON) scripts/make_wheel.py --version $(VERSION) --platform manylinux_$(subst .,_,$(OLDEST_GLIBC))_$(ARCH) --stage $(DIST)/stage/udnnmem-$(VERSION) --output $(DIST)

clean: ## remove build/
	rm -rf $(BUILD)

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) tests/gpu/module.mk | expand -t 18



FORCE:
.PHONY: FORCE all alone browser test check sanitised test-real bench demo install uninstall staged tarball wheel clean help
.DELETE_ON_ERROR:
