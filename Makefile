# SPDX-License-Identifier: MIT
#
# gkv user space. One non-recursive makefile; every source is picked up by wildcard, so a new file
# needs no line here. `make help` lists the targets. The kernel module is built by Kbuild (dkms.conf).

VERSION	:= 0.1.0
SOVER	:= 0

PREFIX		?= /usr/local
BINDIR		?= $(PREFIX)/bin
SBINDIR		?= $(PREFIX)/sbin
LIBDIR		?= $(PREFIX)/lib
INCLUDEDIR	?= $(PREFIX)/include
MANDIR		?= $(PREFIX)/share/man
UNITDIR		?= $(PREFIX)/lib/systemd/system
UDEVDIR		?= $(PREFIX)/lib/udev/rules.d
SYSUSERSDIR	?= $(PREFIX)/lib/sysusers.d
DKMSDIR		?= $(PREFIX)/src/gkv-$(VERSION)
EXAMPLEDIR	?= $(PREFIX)/share/doc/gkv
COMPLETIONDIR	?= $(PREFIX)/share/bash-completion/completions

# SAN selects a sanitizer variant with its own output directory; "fuzz" is for check-fuzz (clang).
SAN	?=
BUILD	?= build$(if $(SAN),/san-$(SAN))
# An empty one would build into, and clean, the root directory.
ifeq ($(strip $(BUILD)),)
$(error BUILD is empty)
endif

ifeq ($(origin CC),default)
CC	:= $(if $(filter fuzz,$(SAN)),clang,gcc)
endif
# g++ with gcc, clang++-16 with clang-16: the runtimes of the sanitizers must be of one make.
ifeq ($(origin CXX),default)
CXX	:= $(if $(findstring clang,$(CC)),$(subst clang,clang++,$(CC)),$(if $(findstring \
		gcc,$(CC)),$(subst gcc,g++,$(CC)),g++))
endif
ifeq ($(origin AR),default)
AR	:= ar
endif
PKG_CONFIG ?= pkg-config
CLANG	?= clang
# RADOS=n builds without the rados store, librados and a C++ compiler.
RADOS	?= y
override RADOS := $(filter-out n no 0,$(RADOS))

comma	:= ,

.DEFAULT_GOAL := all
.SUFFIXES:
.DELETE_ON_ERROR:
.SECONDARY:

# ---- Dependencies --------------------------------------------------------------------------------

# libgkv needs nothing but libc.
DEPS_daemon	:= liburing inih json-c libnvme libisal uuid
DEPS_tools	:= json-c libkmod
DEPS_test	:= cmocka
# Only where the daemon is not built with a sanitizer, which brings its own malloc.
DEPS_alloc	:= $(if $(RADOS),$(if $(SAN),,libtcmalloc_minimal))

# pkg-config module -> Debian package, for the error message.
PKG_liburing	:= liburing-dev
PKG_inih	:= libinih-dev
PKG_json-c	:= libjson-c-dev
PKG_libkmod	:= libkmod-dev
PKG_libnvme	:= libnvme-dev
PKG_libisal	:= libisal-dev
PKG_uuid	:= uuid-dev
PKG_cmocka	:= libcmocka-dev
PKG_libtcmalloc_minimal := libgoogle-perftools-dev
PKG_c++		:= g++
PKG_rados	:= librados-dev
PKG_radospp	:= libradospp-dev

# Goals that build nothing in this make process: they install dependencies first, or need none.
FRONT_GOALS	:= help clean deps demo bench check check-long check-unit check-integration \
		   check-ceph check-san check-fuzz check-vm check-debug install-dkms
BUILD_GOALS	:= $(filter-out $(FRONT_GOALS),$(or $(MAKECMDGOALS),all))
TEST_GOALS	:= $(filter tests fuzzers run-% $(BUILD)/tests/%,$(BUILD_GOALS))

ifneq ($(BUILD_GOALS),)
ifeq ($(shell command -v $(PKG_CONFIG) 2>/dev/null),)
$(error $(PKG_CONFIG) is missing: install the Debian package pkg-config)
endif
need	:= $(sort $(DEPS_daemon) $(DEPS_tools) $(DEPS_alloc) $(if $(TEST_GOALS),$(DEPS_test)))
missing	:= $(foreach m,$(need),$(if $(shell $(PKG_CONFIG) --exists $(m) && echo y),,$(m)))
ifneq ($(RADOS),)
# librados has no .pc file: ask the compiler.
has_header = $(shell printf '\043if __has_include(<$(1)>)\nyes\n\043endif\n' | \
		$(CXX) -E -P -x c++ - 2>/dev/null | grep -x yes)
ifeq ($(shell command -v $(firstword $(CXX)) 2>/dev/null),)
missing	+= c++
else
missing	+= $(if $(call has_header,rados/librados.h),,rados)
missing	+= $(if $(call has_header,rados/librados.hpp),,radospp)
endif
endif
ifneq ($(strip $(missing)),)
$(foreach m,$(missing),$(info error: library $(m) is missing: install the Debian package $(PKG_$(m))))
$(if $(filter c++ rados radospp libtcmalloc_minimal,$(missing)), \
	$(info error: or build without the rados store: make RADOS=n))
$(error missing libraries; run: apt-get install $(foreach m,$(missing),$(PKG_$(m))))
endif
PC_CFLAGS	:= $(shell $(PKG_CONFIG) --cflags $(DEPS_daemon) $(DEPS_tools))
PC_CFLAGS_test	:= $(if $(TEST_GOALS),$(shell $(PKG_CONFIG) --cflags $(DEPS_test)))
# The store's C++ is linked by $(CXX), which also brings its runtime.
LIBS_rados	:= $(if $(RADOS),-lrados)
LIBS_daemon	:= $(shell $(PKG_CONFIG) --libs $(DEPS_daemon)) $(LIBS_rados)
# glibc maps, faults and unmaps every receive buffer of 32 MiB anew. Nothing names tcmalloc, so
# it would be dropped as not needed.
LIBS_alloc	:= $(if $(DEPS_alloc),-Wl$(comma)--push-state$(comma)--no-as-needed \
			$(shell $(PKG_CONFIG) --libs $(DEPS_alloc)) -Wl$(comma)--pop-state)
LIBS_tools	:= $(shell $(PKG_CONFIG) --libs $(DEPS_tools))
LIBS_test	:= $(if $(TEST_GOALS),$(shell $(PKG_CONFIG) --libs $(DEPS_test)))
endif

# The rados store is there when its main file is: a partial tree stays usable.
ifneq ($(RADOS),)
HAVE	:= $(if $(wildcard daemon/kvbridged/stores/rados/rados.c),-DKVB_HAVE_RADOS)
endif

# ---- Flags ---------------------------------------------------------------------------------------

SANFLAGS_address	:= -fsanitize=address,undefined -fno-sanitize-recover=undefined
# gcc warns of fences, which TSan does not model: ours order accesses against other processes.
SANFLAGS_thread		:= -fsanitize=thread $(if $(findstring clang,$(CC)),,-Wno-tsan)
SANFLAGS_fuzz		:= -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
SANFLAGS		:= $(if $(SAN),$(or $(SANFLAGS_$(SAN)),$(error SAN=$(SAN): not one of address thread fuzz)))

OPT	?= -O2
WARN	:= -Wall -Wextra -Werror
INCLUDES:= -Iuapi -Ilib/include -Idaemon/kvbridged
# CFLAGS, CXXFLAGS and LDFLAGS stay the user's; what the sources need is in the GKV_ variables.
GKV_FLAGS   := -D_GNU_SOURCE -DGKV_BUILD_VERSION='"$(VERSION)"' $(OPT) -g $(WARN) \
	       -fno-omit-frame-pointer -pthread $(INCLUDES) $(PC_CFLAGS) $(SANFLAGS) $(HAVE)
GKV_CFLAGS  := -std=gnu11 $(GKV_FLAGS)
GKV_CXXFLAGS := -std=gnu++17 $(GKV_FLAGS)
GKV_LDFLAGS := -pthread -Wl,--as-needed $(SANFLAGS)

compile	= $(CC) $(GKV_CFLAGS) $(CFLAGS_this) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<
compile_cxx = $(CXX) $(GKV_CXXFLAGS) $(CFLAGS_this) $(CPPFLAGS) $(CXXFLAGS) -MMD -MP -c -o $@ $<
link	= $(CC) $(GKV_LDFLAGS) $(LDFLAGS) -o $@
# For what contains the daemon's stores.
link_stores = $(if $(RADOS),$(CXX),$(CC)) $(GKV_LDFLAGS) $(LDFLAGS) -o $@
Q	:= $(if $(V),,@)
say	= $(if $(V),,@printf '  %-7s %s\n' $(1) $(patsubst $(BUILD)/%,%,$@))

# ---- Sources -------------------------------------------------------------------------------------

objs	= $(patsubst %.cc,$(BUILD)/obj/%.o,$(patsubst %.c,$(BUILD)/obj/%.o,$(1)))

DAEMON_SRC := $(sort $(foreach d,core control admin config stores stores/* filters, \
		$(wildcard daemon/kvbridged/$(d)/*.c)) $(wildcard daemon/kvbridged/stores/*/*.cc))
ifeq ($(HAVE),)
DAEMON_SRC := $(filter-out daemon/kvbridged/stores/rados/%,$(DAEMON_SRC))
endif
DAEMON_MAIN := $(wildcard daemon/kvbridged/main.c)
LIB_SRC	:= $(sort $(wildcard lib/src/*.c))
CTL_SRC	:= $(sort $(wildcard tools/gkvctl/*.c))
# The simulator, which tests use as well; the program around it needs a daemon.
GPUSIM_SRC := $(sort $(wildcard tools/gkv-gpusim/bus_*.c \
		$(foreach f,main options work killer,tools/gkv-gpusim/$(f).c)))
SIM_SRC	:= $(sort $(filter-out $(GPUSIM_SRC),$(wildcard tools/gkv-gpusim/*.c)))
BENCH_SRC := $(sort $(wildcard tools/gkv-bench/*.c) \
		$(if $(RADOS),$(wildcard tools/gkv-bench/*.cc)))

# A part whose sources are absent is not built; that keeps a partial tree usable.
LIBS_BUILT := $(if $(LIB_SRC),$(BUILD)/libgkv.so.$(SOVER) $(BUILD)/libgkv.so $(BUILD)/libgkv.a)
BINS_BUILT := $(if $(CTL_SRC),$(BUILD)/gkvctl) $(if $(BENCH_SRC),$(BUILD)/gkv-bench) \
		$(if $(GPUSIM_SRC),$(BUILD)/gkv-gpusim)
SBINS_BUILT := $(if $(DAEMON_MAIN),$(BUILD)/kvbridged)
PC_BUILT  := $(if $(wildcard lib/libgkv.pc.in),$(BUILD)/libgkv.pc)
LIBGKV_A  := $(if $(LIB_SRC),$(BUILD)/libgkv.a)
LIBSIM_A  := $(if $(SIM_SRC),$(BUILD)/libgpusim.a)
LIBKVB_A  := $(if $(DAEMON_SRC),$(BUILD)/libkvbridged.a)

all: $(LIBS_BUILT) $(LIBKVB_A) $(SBINS_BUILT) $(BINS_BUILT) $(PC_BUILT)

# ---- Rules ---------------------------------------------------------------------------------------

# Objects are rebuilt when the compiler or a flag changes.
FLAGS_NOW := $(CC) $(GKV_CFLAGS) $(CPPFLAGS) $(CFLAGS) $(GKV_LDFLAGS) $(LDFLAGS) \
		$(if $(RADOS),$(CXX) $(CXXFLAGS))
ifneq ($(BUILD_GOALS),)
ifneq ($(FLAGS_NOW),$(file <$(BUILD)/flags))
$(shell mkdir -p $(BUILD))
$(file >$(BUILD)/flags,$(FLAGS_NOW))
endif
endif
$(BUILD)/flags: ;

$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(compile)

$(BUILD)/obj/%.o: %.cc $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CXX)
	$(Q)$(compile_cxx)

# The objects serve libgkv.so and libgkv.a alike.
$(BUILD)/obj/lib/src/%.o: CFLAGS_this := -fPIC -fvisibility=hidden

define archive
	$(call say,AR)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
endef

$(BUILD)/libkvbridged.a: $(call objs,$(DAEMON_SRC))
	$(archive)

$(BUILD)/libgkv.a: $(call objs,$(LIB_SRC))
	$(archive)

LIB_MAP	:= $(wildcard lib/libgkv.map)
LIB_MAP_FLAG := $(addprefix -Wl$(comma)--version-script=,$(LIB_MAP))
$(BUILD)/libgkv.so.$(SOVER): $(call objs,$(LIB_SRC)) $(LIB_MAP)
	$(call say,LD)
	$(Q)$(link) -shared -Wl,-soname,libgkv.so.$(SOVER) $(if $(SAN),,-Wl,-z,defs) \
		$(LIB_MAP_FLAG) $(filter %.o,$^)

$(BUILD)/libgkv.so: $(BUILD)/libgkv.so.$(SOVER)
	$(Q)ln -sf $(<F) $@

# Always made anew: PREFIX may differ between make and make install.
$(BUILD)/libgkv.pc: lib/libgkv.pc.in FORCE
	@mkdir -p $(@D)
	$(Q)sed -e 's|@PREFIX@|$(PREFIX)|g; s|@LIBDIR@|$(LIBDIR)|g; s|@INCLUDEDIR@|$(INCLUDEDIR)|g' \
		-e 's|@prefix@|$(PREFIX)|g; s|@libdir@|$(LIBDIR)|g; s|@includedir@|$(INCLUDEDIR)|g' \
		-e 's|@VERSION@|$(VERSION)|g; s|@version@|$(VERSION)|g' $< >$@.$$$$ && mv $@.$$$$ $@

$(BUILD)/libgpusim.a: $(call objs,$(SIM_SRC))
	$(archive)

$(BUILD)/obj/tools/gkv-gpusim/%.o: CFLAGS_this := -DGKV_DEV_SIM

$(BUILD)/kvbridged: $(call objs,$(DAEMON_MAIN)) $(LIBKVB_A)
	$(call say,LD)
	$(Q)$(link_stores) $^ $(LIBS_daemon) $(LIBS_alloc) -lm

$(BUILD)/gkvctl: $(call objs,$(CTL_SRC)) $(LIBGKV_A)
	$(call say,LD)
	$(Q)$(link) $^ $(LIBS_tools) -lm

$(BUILD)/gkv-gpusim: $(call objs,$(GPUSIM_SRC)) $(LIBSIM_A) $(LIBGKV_A)
	$(call say,LD)
	$(Q)$(link) $^

# It measures librados without the daemon, too.
$(BUILD)/gkv-bench: $(call objs,$(BENCH_SRC)) $(LIBGKV_A)
	$(call say,LD)
	$(Q)$(link_stores) $^ $(LIBS_tools) $(LIBS_rados) \
		$(if $(filter %.cc,$(BENCH_SRC)),$(LIBS_alloc)) -lm

# ---- Tests ---------------------------------------------------------------------------------------

# tests/lib/*.c help every test; files of tests/fuzz that are not programs help every fuzzer;
# a helper of tests/unit is linked into those programs that include its header.
TESTLIB_SRC	:= $(wildcard tests/lib/*.c)
UNIT_SRC	:= $(wildcard tests/unit/test_*.c)
UNITLIB_SRC	:= $(filter-out $(UNIT_SRC),$(wildcard tests/unit/*.c))
DEVICE_SRC	:= $(wildcard tests/device/test_*.c)
DEVICELIB_SRC	:= $(filter-out $(DEVICE_SRC),$(wildcard tests/device/*.c))
PROG_SRC	:= $(wildcard tests/integration/*.c tests/crash/*.c tests/ceph/*.c)
FUZZ_SRC	:= $(wildcard tests/fuzz/fuzz_*.c)
FUZZLIB_SRC	:= $(filter-out $(FUZZ_SRC),$(wildcard tests/fuzz/*.c))

UNIT_PROGS	:= $(patsubst %.c,$(BUILD)/%,$(UNIT_SRC))
DEVICE_PROGS	:= $(patsubst %.c,$(BUILD)/%,$(DEVICE_SRC))
OTHER_PROGS	:= $(patsubst %.c,$(BUILD)/%,$(PROG_SRC))
FUZZERS		:= $(patsubst %.c,$(BUILD)/%,$(FUZZ_SRC))
TEST_SCRIPTS	:= $(wildcard tests/integration/test_*.py tests/integration/test_*.sh \
			tests/crash/test_*.py tests/crash/test_*.sh)
CEPH_TESTS	:= $(wildcard tests/ceph/test_*.py)
CHECK_SCRIPTS	:= $(wildcard scripts/check-*.sh)
INTEGRATION	:= $(filter $(BUILD)/tests/integration/test_% $(BUILD)/tests/crash/test_%, \
			$(OTHER_PROGS)) $(TEST_SCRIPTS)

LIBTEST_A	:= $(if $(TESTLIB_SRC),$(BUILD)/tests/libtest.a)

$(BUILD)/obj/tests/%.o: CFLAGS_this := -Itests/lib $(PC_CFLAGS_test)

$(BUILD)/tests/libtest.a: $(call objs,$(TESTLIB_SRC))
	@mkdir -p $(@D)
	$(archive)

# A helper may stand in for functions of the daemon: objects come first, and the archive's member
# is then not taken. So a test gets the helpers it includes, and no other ("file|header" below).
UNIT_HELPERS	:= $(UNITLIB_SRC:tests/unit/%.c=%)
UNIT_INCLUDES	:= $(shell grep -s -H -o '^.include "[a-z0-9_]*\.h"' tests/unit/*.[ch] | \
			sed 's/\.[ch]:.include "/|/; s/\.h"//')
includes	= $(filter $(UNIT_HELPERS),$(patsubst $(1)|%,%,$(filter $(1)|%,$(UNIT_INCLUDES))))
helpers		= $(sort $(call includes,$(1)) \
			$(foreach h,$(call includes,$(1)),$(call includes,tests/unit/$(h))))
$(foreach t,$(UNIT_SRC:%.c=%), \
	$(eval $(BUILD)/$(t): $(patsubst %,$(BUILD)/obj/tests/unit/%.o,$(call helpers,$(t)))))

# This one sees each access to rings and GPU memory: with those parts of the daemon built for it.
TRACED	:= $(patsubst %,$(BUILD)/obj/traced/daemon/kvbridged/core/%.o,bar copy dbline dptr post qp \
			reactor recover)
$(TRACED): CFLAGS_this := -DKVB_TRACE_ACCESS
$(TRACED): $(BUILD)/obj/traced/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(compile)
$(patsubst %,$(BUILD)/tests/unit/test_%,accesses dbline direct): $(TRACED)

$(UNIT_PROGS) $(OTHER_PROGS): $(BUILD)/%: $(BUILD)/obj/%.o $(LIBTEST_A) $(LIBKVB_A) $(LIBGKV_A)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(link_stores) $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group \
		$(LIBS_daemon) $(LIBS_test) -lm -ldl

# Device code and the simulator it runs on; nothing of the daemon.
$(BUILD)/obj/tests/device/%.o: CFLAGS_this := -DGKV_DEV_SIM -Itools/gkv-gpusim $(PC_CFLAGS_test)
$(DEVICE_PROGS): $(BUILD)/%: $(BUILD)/obj/%.o $(call objs,$(DEVICELIB_SRC)) $(LIBSIM_A)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(link) $^ $(LIBS_test)

$(FUZZERS): $(BUILD)/%: $(BUILD)/obj/%.o $(call objs,$(FUZZLIB_SRC)) $(LIBKVB_A) $(LIBGKV_A)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(link_stores) -fsanitize=fuzzer $(filter %.o,$^) -Wl,--start-group $(LIBKVB_A) $(LIBGKV_A) \
		-Wl,--end-group $(LIBS_daemon) -lm

tests: all $(UNIT_PROGS) $(DEVICE_PROGS) $(OTHER_PROGS)

ifeq ($(SAN),fuzz)
fuzzers: $(FUZZERS)
else
fuzzers:
	+$(Q)$(MAKE) --no-print-directory SAN=fuzz CC=$(CLANG) BUILD=$(BUILD)/san-fuzz fuzzers
endif

# run-* build and run one suite and append to $(RESULTS); check-* are what people call.
RESULTS	?= $(BUILD)/results.jsonl
RUN	= python3 scripts/run-tests.py
# The Ceph of the other Debian release, so that both are tested on either.
CEPH_RELEASE := $(if $(shell grep -s -x VERSION_CODENAME=trixie /etc/os-release),bookworm,trixie)
CEPH_ROOT ?= $(abspath $(BUILD))/ceph-$(CEPH_RELEASE)
JOBS	= $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))
SUITES	:= unit integration ceph san fuzz vm debug
# The machines run one after the other beside the suites from ceph on, which wait a lot and have
# wide time limits, and at a lower priority: the whole is done half an hour earlier.
BESIDE	:= vm debug
BESIDE_FROM := ceph

run-unit: tests
	@$(RUN) run --results $(RESULTS) --suite unit$(addprefix -,$(SAN)) --build $(BUILD) \
		--san "$(SAN)" --timeout 120 $(UNIT_PROGS) $(DEVICE_PROGS) $(if $(SAN),,$(CHECK_SCRIPTS))

run-integration: tests
	@$(RUN) run --results $(RESULTS) --suite integration$(addprefix -,$(SAN)) --build $(BUILD) \
		--san "$(SAN)" --timeout 300 $(INTEGRATION)

# Without the chroot, the tests that need it fail, and say so. None of those with a sanitizer does.
run-ceph: tests
	$(if $(SAN),,@scripts/ceph-chroot.sh $(CEPH_ROOT) $(CEPH_RELEASE) || true)
	@GKV_CEPH_ROOT=$(CEPH_ROOT) $(RUN) run --results $(RESULTS) \
		--suite ceph$(addprefix -,$(SAN)) --build $(BUILD) --san "$(SAN)" --timeout 300 \
		$(CEPH_TESTS)

run-san:
	+@for s in address thread; do for t in unit integration $(if $(RADOS),ceph); do \
		$(MAKE) --no-print-directory SAN=$$s BUILD=$(BUILD)/san-$$s RESULTS=$(RESULTS) run-$$t || \
		$(RUN) fail --results $(RESULTS) --suite $$t-$$s "suite did not build or run"; \
	done; done

# In a virtual machine; what it needs beyond this build, but for the GPU beside it, it makes itself.
run-vm run-debug: $(BUILD)/gkv-gpusim

run-vm:
	@$(RUN) run --results $(RESULTS) --suite vm --build $(BUILD) selftests/vm/check.sh

# The same on a kernel with KASAN, lockdep and fault injection, which it builds first.
run-debug:
	@$(RUN) run --results $(RESULTS) --suite debug --build $(BUILD) selftests/vm/check-debug.sh

run-fuzz: fuzzers
	@$(RUN) fuzz --results $(RESULTS) --build $(BUILD)/san-fuzz --jobs 2 \
		$(patsubst %.c,$(BUILD)/san-fuzz/%,$(FUZZ_SRC))

# A suite that cannot be built counts as one failure and the later suites still run.
define check
	@scripts/deps.sh build test $(if $(filter ceph san vm debug,$(1)),ceph) $(if $(filter vm debug,$(1)),vm)
	@mkdir -p $(BUILD) && rm -f $(RESULTS)
	+@beside=; trap 'kill $$beside 2>/dev/null; exit 1' INT TERM; \
	suite() { \
		$$2 $(MAKE) --no-print-directory $(JOBS) run-$$1 || \
		$(RUN) fail --results $(RESULTS) --suite $$1 "suite did not build or run"; \
	}; \
	for s in $(if $(filter $(BESIDE_FROM),$(1)),$(filter-out $(BESIDE),$(1)),$(1)); do \
		if [ $$s = $(BESIDE_FROM) ] && [ -n "$(filter $(BESIDE),$(1))" ]; then \
			for b in $(filter $(BESIDE),$(1)); do suite $$b "nice -n 5"; done & beside=$$!; \
		fi; \
		suite $$s; \
	done; \
	wait $$beside
	@$(RUN) summary --results $(RESULTS)
endef

check:
	$(call check,$(SUITES))

$(addprefix check-,$(SUITES)): check-%:
	$(call check,$*)

check-long: export GKV_LONG := 1
check-long:
	$(call check,$(SUITES))

# ---- Other targets -------------------------------------------------------------------------------

deps:
	@scripts/deps.sh build test bench ceph vm

demo:
	@scripts/deps.sh build $(if $(filter rados,$(STORE))$(VM),ceph) $(if $(VM),vm)
	+@$(MAKE) --no-print-directory $(JOBS) all
	@GKV_BUILD=$(BUILD) STORE=$(STORE) $(if $(VM),scripts/demo-vm.sh,scripts/demo.sh)

bench:
	@scripts/deps.sh build $(if $(VM),vm,bench)
	+@$(MAKE) --no-print-directory $(JOBS) all
	@GKV_BUILD=$(BUILD) $(if $(VM),scripts/bench-vm.sh,scripts/bench.sh)

INSTALL	?= install
MANPAGES := $(wildcard docs/man/*.[1-8])
D	:= $(DESTDIR)

install: all install-dkms
	$(INSTALL) -d $(D)$(BINDIR) $(D)$(SBINDIR) $(D)$(LIBDIR)/pkgconfig $(D)$(INCLUDEDIR)/gkv \
		$(D)$(INCLUDEDIR)/gkv_device
	$(if $(strip $(BINS_BUILT)),$(INSTALL) -m 755 $(BINS_BUILT) $(D)$(BINDIR))
	$(if $(SBINS_BUILT),$(INSTALL) -m 755 $(SBINS_BUILT) $(D)$(SBINDIR))
ifneq ($(LIB_SRC),)
	$(INSTALL) -m 644 $(BUILD)/libgkv.a $(D)$(LIBDIR)/libgkv.a
	$(INSTALL) -m 755 $(BUILD)/libgkv.so.$(SOVER) $(D)$(LIBDIR)/libgkv.so.$(VERSION)
	ln -sf libgkv.so.$(VERSION) $(D)$(LIBDIR)/libgkv.so.$(SOVER)
	ln -sf libgkv.so.$(SOVER) $(D)$(LIBDIR)/libgkv.so
endif
	$(if $(PC_BUILT),$(INSTALL) -m 644 $(PC_BUILT) $(D)$(LIBDIR)/pkgconfig/libgkv.pc)
	$(INSTALL) -m 644 $(wildcard lib/include/*.h) $(D)$(INCLUDEDIR)
	$(INSTALL) -m 644 $(wildcard lib/include/gkv_device/*.h) $(D)$(INCLUDEDIR)/gkv_device
	$(INSTALL) -m 644 $(wildcard uapi/gkv/*.h) $(D)$(INCLUDEDIR)/gkv
	$(foreach m,$(MANPAGES),$(INSTALL) -D -m 644 $(m) \
		$(D)$(MANDIR)/man$(patsubst .%,%,$(suffix $(m)))/$(notdir $(m)) &&) true
ifneq ($(wildcard packaging/kvbridged.service),)
	$(INSTALL) -d $(D)$(UNITDIR)
	sed 's|@SBINDIR@|$(SBINDIR)|g' packaging/kvbridged.service >$(D)$(UNITDIR)/kvbridged.service
endif
ifneq ($(wildcard packaging/kvbridged.conf),)
	$(INSTALL) -D -m 644 packaging/kvbridged.conf $(D)$(EXAMPLEDIR)/kvbridged.conf
endif
	$(INSTALL) -D -m 644 completions/gkvctl.bash $(D)$(COMPLETIONDIR)/gkvctl
	$(INSTALL) -D -m 644 packaging/60-gkv.rules $(D)$(UDEVDIR)/60-gkv.rules
	$(INSTALL) -D -m 644 packaging/gkv-sysusers.conf $(D)$(SYSUSERSDIR)/gkv.conf
	$(INSTALL) -D -m 644 packaging/gkvdrv-modprobe.conf $(D)$(EXAMPLEDIR)/gkvdrv-modprobe.conf

# The sources of the kernel module, for DKMS. Builds nothing.
install-dkms:
	$(INSTALL) -d $(D)$(DKMSDIR)/kernel/gkvdrv $(D)$(DKMSDIR)/uapi/gkv
	$(INSTALL) -m 644 Kbuild $(D)$(DKMSDIR)
	sed 's/^PACKAGE_VERSION=.*/PACKAGE_VERSION="$(VERSION)"/' dkms.conf >$(D)$(DKMSDIR)/dkms.conf
	$(INSTALL) -m 644 kernel/gkvdrv/Kbuild $(filter-out %.mod.c,$(wildcard kernel/gkvdrv/*.[ch])) \
		$(D)$(DKMSDIR)/kernel/gkvdrv
	$(INSTALL) -m 644 $(wildcard uapi/gkv/*.h) $(D)$(DKMSDIR)/uapi/gkv

clean:
	rm -rf $(BUILD)

define HELP
gkv $(VERSION)

  make                    build everything into $(BUILD)/, install nothing
  make install            install under DESTDIR and PREFIX (now $(PREFIX))
  make install-dkms       only the kernel module's sources, for DKMS
  make demo               replay a real KV-cache trace through the local store, verify every byte
    make demo STORE=rados   the same through a throwaway Ceph cluster
    make demo VM=1          both, with queues and values in the VRAM of a virtual machine
  make check              all tests: the suites below, one total at the end
    make check-unit         unit tests, headers in C90, C11 and C++17, licences
    make check-integration  daemon, clients, crashes, power loss
    make check-ceph         the rados store against throwaway Ceph clusters of two releases
    make check-san          unit and integration again under ASan+UBSan and under TSan
    make check-fuzz         every fuzzer for GKV_FUZZ_SECONDS (60)
    make check-vm           the kernel module on two kernels, in virtual machines (as root)
    make check-debug        the same on a kernel with KASAN and lockdep, built first (10 minutes)
  make check-long         the same with long fuzzing (an hour each) and stress
  make bench              the performance tables, with fio and Valkey beside them
    make bench VM=1         what each memory mode costs, in a virtual machine (as root)
  make deps               install the Debian packages for all of this (as another user: print how)
  make clean              remove $(BUILD)/

  demo, check* and bench install missing Debian packages when run as root, and say so.
  Variables: BUILD=dir  CC=clang  CXX=  CFLAGS=  CXXFLAGS=  SAN=address|thread  PREFIX=  DESTDIR=
             RADOS=n (without the rados store and librados)  V=1 (show commands)
endef

help:
	$(info $(HELP))
	@:

.PHONY: FORCE all install install-dkms tests fuzzers demo bench deps clean help check check-long \
	$(addprefix check-,$(SUITES)) $(addprefix run-,$(SUITES))

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
