# Makefile - builds jempp. `make help` lists the targets; ./make.sh installs what is missing first.
#
# Each flag set keeps its own objects: build/release, asan, poison, tsan, double, cov, fuzz, arm64; a bundle is linked from the
# release's. The release program and its modules lie in build/, those of another set in the set's folder.

VERSION   := $(shell sed -n 's/^.define JEMPP_VERSION "\(.*\)".*/\1/p' include/jempp.h)
SOVERSION := $(firstword $(subst ., ,$(VERSION)))# of the library: it changes when programs must be rebuilt

# ---- what it is built from
LINKED        := libpng libjpeg libwebp libwebpmux zlib libarchive libcjson
PACKAGES      := $(LINKED) libcurl# which is loaded when it is needed
TEST_PACKAGES := cmocka

# ---- other compilers: libFuzzer is clang's, whose OpenMP is a package more; arm64 is made by Debian's cross compiler
SET ?= release
OPENMP := -fopenmp
PKG_CONFIG ?= pkg-config
ifeq ($(SET),fuzz)
override CC := clang
OPENMP := -Wno-unknown-pragmas
endif
ifeq ($(SET),tsan)
OPENMP := -Wno-unknown-pragmas# libgomp is not built for the sanitizer
endif
ARM64 := $(CURDIR)/build/arm64-root
ifeq ($(SET),arm64)
override CC := aarch64-linux-gnu-gcc --sysroot=$(ARM64)
override AR := aarch64-linux-gnu-ar
override PKG_CONFIG := PKG_CONFIG_SYSROOT_DIR=$(ARM64) \
    PKG_CONFIG_LIBDIR=$(ARM64)/usr/lib/aarch64-linux-gnu/pkgconfig pkg-config
CUDA :=
MPI :=
CAIRO :=
HTTP :=
endif

# ---- optional parts: found where they are, switched off by giving nothing (make CUDA=)
has_header = $(shell echo '\#include <$(1)>' | $(CC) -E -x c - >/dev/null 2>&1 && echo yes)
ONEDNN ?= $(call has_header,dnnl.h)
CAIRO  ?= $(call has_header,cairo/cairo-svg.h)
HTTP   ?= $(call has_header,microhttpd.h)
MPI    ?= $(shell command -v mpicc)
CUDA   ?= $(patsubst %/bin/nvcc,%,$(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc)))
CUDNN  ?= $(if $(CUDA),$(or $(wildcard $(CUDA)/include/cudnn.h),$(call has_header,cudnn.h)))
ONEDNN := $(ONEDNN)# probed once, not at each use
CAIRO  := $(CAIRO)
HTTP   := $(HTTP)
MPI    := $(MPI)
CUDA   := $(CUDA)
CUDNN  := $(CUDNN)
GPUS   ?= 80 90# compute capabilities that the cuda module carries code for

# ---- where it is installed
PREFIX     ?= /usr/local
BINDIR     ?= $(PREFIX)/bin
LIBDIR     ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
DATADIR    ?= $(PREFIX)/share
ZSHDIR     ?= $(DATADIR)/zsh/site-functions
MODULE_DIR := $(LIBDIR)/jempp-$(SOVERSION)
MULTIARCH  := $(or $(shell $(CC) -print-multiarch 2>/dev/null),$(shell $(CC) -dumpmachine))
MODULE_NEAR := $(shell realpath -m --relative-to=$(BINDIR) $(MODULE_DIR))

# ---- flags
SETFLAGS.release := -O2
SETFLAGS.asan    := -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all -DPOISON
SETFLAGS.poison  := -O2 -DPOISON
SETFLAGS.tsan    := -O1 -fno-omit-frame-pointer -fsanitize=thread
SETFLAGS.double  := -O2 -DREAL=double
SETFLAGS.cov     := -O0 --coverage
SETFLAGS.bundle  := $(SETFLAGS.release)
SETFLAGS.fuzz    := -O1 -fno-omit-frame-pointer -fsanitize=address,undefined,float-cast-overflow,fuzzer-no-link -fno-sanitize-recover=all
SETFLAGS.arm64   := -O2
$(if $(SETFLAGS.$(SET)),,$(error SET=$(SET): there is release, asan, poison, tsan, double, cov, fuzz, arm64, bundle))

WARN     := -Wall -Wextra -Wshadow -Wpedantic $(if $(WERROR),-Werror)
DEFINES  := -D_GNU_SOURCE -Isrc -Iinclude
PKGFLAGS := $(shell $(PKG_CONFIG) --cflags $(PACKAGES) 2>/dev/null)
BASEFLAGS := -std=c11 $(DEFINES) $(PKGFLAGS) -g1 $(OPENMP) -fPIC -fvisibility=hidden $(SETFLAGS.$(SET))
COMPILE  = $(CC) $(BASEFLAGS) $(WARN) -MMD -MP $(CPPFLAGS) $(CFLAGS)
LINK     = $(CC) $(SETFLAGS.$(SET)) $(CFLAGS) $(LDFLAGS) -Wl,--as-needed
LIBS     = $(call libs_of,$(LINKED)) -ldl -lm

# A bundle goes where these libraries may not be: it takes in those that there are archives of, and looks
# for the others in its lib/, on behalf of its modules too (an old-style rpath does that).
libs_of  = $(shell $(PKG_CONFIG) --libs $(1))
ifeq ($(SET),bundle)
there    = $(filter /%,$(shell $(CC) -print-file-name=lib$(1)))
archive  = $(if $(call there,$(1).a),-l:lib$(1).a,$(if $(call there,$(1).so),-l$(1)))
libs_of  = -Wl,--start-group $(foreach l,$(shell $(PKG_CONFIG) --static --libs $(1)),$(if \
             $(filter-out -lm -ldl -lpthread,$(filter -l%,$(l))),$(call archive,$(l:-l%=%)),$(l))) -Wl,--end-group
LDFLAGS += -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/../lib'
endif

# Kernels that the compiler vectorises are built once for each instruction set; the module chooses.
ISAS := $(if $(filter x86_64%,$(shell $(CC) -dumpmachine)),bf16 avx512 avx2) base
ISAFLAGS.avx512 := -mavx512f -mavx512dq -mavx512bw -mavx512vl -mfma -mprefer-vector-width=512
ISAFLAGS.bf16   := $(ISAFLAGS.avx512) -mavx512bf16
ISAFLAGS.avx2   := -mavx2 -mfma
FAST := $(if $(filter cov,$(SET)),,$(if $(filter asan,$(SET)),-O2,-O3)) -ffp-contract=fast -fno-math-errno -fno-trapping-math

NVCC      = $(CUDA)/bin/nvcc
NVCCFLAGS = -std=c++17 -O3 -g -Isrc -lineinfo $(filter -D%,$(SETFLAGS.$(SET))) \
            $(foreach g,$(GPUS),-gencode arch=compute_$(g)$(SPECIAL.$(g)),code=sm_$(g)$(SPECIAL.$(g))) \
            -gencode arch=compute_$(lastword $(GPUS)),code=compute_$(lastword $(GPUS)) \
            -Xfatbin=-compress-all -Xcompiler=-fPIC,-fvisibility=hidden,-Wall$(if $(WERROR),$(comma)-Werror)
comma := ,

# ---- files
OBJ := build/$(SET:bundle=release)
BIN := build$(if $(filter-out release,$(SET)),/$(SET))
TEST_OBJ := build/$(SET)/tests
objects = $(patsubst %.c,$(OBJ)/%.o,$(patsubst src/%,%,$(1)))

PLOT_SRC := $(filter-out src/base/plot.c,$(wildcard src/base/plot*.c))
HTTP_SRC := src/serve/http_mhd.c
LAYERS   := base conf net data jem $(if $(filter double,$(SET)),,run report eval serve api)# the tests in double need no more
LIB_SRC  := $(filter-out $(PLOT_SRC) $(HTTP_SRC),$(foreach r,$(LAYERS),$(wildcard src/$(r)/*.c)) \
            $(wildcard src/dev/backend.c src/dev/dense.c src/dev/singular.c src/dev/ref*.c src/dev/comm.c))
CLI_SRC  := $(wildcard src/cli/*.c)
PAGE     := $(sort $(wildcard src/serve/page/*))
PRESETS  := $(sort $(wildcard presets/*.conf))
ISA_SRC  := $(wildcard $(addprefix src/dev/cpu_,ops.c pool.c starts.c stem.c wino.c))
CPU_SRC  := $(filter-out $(ISA_SRC),$(wildcard src/dev/cpu*.c))
MPI_SRC  := $(wildcard src/dev/comm_mpi.c)
CUDA_SRC := $(wildcard src/dev/cuda*.cu)

LIB      := $(OBJ)/libjempp.a
PARTS    := $(OBJ)/parts# what only an installed jempp has
SONAME   := libjempp.so.$(SOVERSION)
BASE_OBJ := $(call objects,src/base/err.c src/base/text.c src/base/arena.c src/base/library.c)# a module brings its own
CPU_OBJ  := $(call objects,$(CPU_SRC)) $(foreach i,$(ISAS),$(patsubst src/%.c,$(OBJ)/%-$(i).o,$(ISA_SRC)))
CUDA_OBJ := $(patsubst src/%.cu,$(OBJ)/%.o,$(CUDA_SRC))
MODULES  := $(if $(and $(ONEDNN),$(CPU_SRC)),$(BIN)/jempp-cpu.so) \
            $(if $(and $(filter release bundle,$(SET)),$(CUDA),$(CUDNN),$(CUDA_SRC)),$(BIN)/jempp-cuda.so) \
            $(if $(and $(MPI),$(MPI_SRC)),$(BIN)/jempp-mpi.so) \
            $(if $(CAIRO),$(BIN)/jempp-plot.so) \
            $(if $(HTTP),$(BIN)/jempp-serve.so)

# ---- tests: TESTS="test_ops check_layers" picks some
pick = $(if $(TESTS),$(foreach t,$(1),$(if $(filter $(TESTS),$(basename $(notdir $(t)))),$(t))),$(1))
programs = $(patsubst tests/%.c,build/$(1)/tests/%,$(call pick,$(2)))
DOUBLE_TESTS ?= test_ops test_net test_golden test_iterate test_ranks# those that prove the mathematics
DOUBLE_SRC   := $(wildcard $(DOUBLE_TESTS:%=tests/%.c))
TEST_BIN     := $(call programs,$(SET),$(if $(filter double,$(SET)),$(DOUBLE_SRC),$(wildcard tests/test_*.c)))
DOUBLE_BIN   := $(call programs,double,$(DOUBLE_SRC))
USE_SCRIPTS  := $(call pick,$(wildcard tests/*_test.sh))# these run the program
CHECKS       := $(call pick,$(wildcard tests/check_*.sh))# these read the tree
RUN = JEMPP=$(CURDIR)/$(BIN)/jempp JEMPP_MODULE_DIR=$(CURDIR)/$(BIN) tests/run.sh

# ---- targets
.PHONY: all tests run test asan poison tsan page fuzz arm64 cov bench bench-torch demo lint format install uninstall bundle bundle-folder wheel wheel-folder deb clean help FORCE
.SECONDARY:
.DELETE_ON_ERROR:

NO_ONEDNN := note: no oneDNN (dnnl.h), so no cpu module: computing on the slow reference device
NO_CUDA   := note: no CUDA compiler with cuDNN, so no cuda module: GPUs are not used
NO_CAIRO  := note: no cairo (cairo-svg.h), so no plot module: pictures of runs are left out
NO_HTTP   := note: no libmicrohttpd (microhttpd.h), so no serve module: no live page
NO_MPI    := note: no mpicc, so no mpi module: training on one machine only
all: $(LIB) $(if $(filter double,$(SET)),,$(BIN)/jempp $(MODULES))
	$(if $(ONEDNN),,$(info $(NO_ONEDNN)))
	$(if $(CUDA_SRC),$(if $(CUDNN),,$(info $(NO_CUDA))))
	$(if $(MPI_SRC),$(if $(MPI),,$(info $(NO_MPI))))
	$(if $(CAIRO),,$(info $(NO_CAIRO)))
	$(if $(HTTP),,$(info $(NO_HTTP)))

tests: $(TEST_BIN)

run: all tests
	@$(RUN) $(USE_SCRIPTS) $(TEST_BIN)

test: all tests
	@$(MAKE) --no-print-directory SET=double tests
	@$(RUN) $(USE_SCRIPTS) $(TEST_BIN) $(DOUBLE_BIN) $(CHECKS)

# Poison is about the memory of devices, so it is for the tests that use one.
POISONED := test_cpu test_cpu_dev test_inception test_ops test_net test_golden test_iterate test_chains test_train \
            test_eval test_model
# The sanitizers, which come with poison, leave out tests that are mostly arithmetic and take minutes, or take the
# ways of others; TESTS=test_fidelity runs one.
UNWATCHED := test_fidelity test_inception test_chain_length docs_test learn_test upgrade_test fault_test
SANITIZED := $(filter-out $(UNWATCHED),$(basename $(notdir $(wildcard tests/test_*.c tests/*_test.sh))))
poison:
	@$(MAKE) --no-print-directory SET=$@ TESTS="$(or $(TESTS),$(POISONED))" run
asan:
	@$(MAKE) --no-print-directory SET=$@ TESTS="$(or $(TESTS),$(SANITIZED))" run

# The thread that writes checkpoints, with the reference device alone: the other modules bring threads of their own.
TSAN := SET=tsan ONEDNN= CUDA= MPI= CAIRO=
tsan:
	@$(MAKE) --no-print-directory $(TSAN) TESTS="test_base test_faults" tests
	@$(MAKE) --no-print-directory $(TSAN) TESTS=test_base run
	build/tsan/tests/test_faults 'a_slow_disk*'
	build/tsan/tests/test_faults 'every_call_that_writes*'

page: all       # needs chromium
	@JEMPP=$(CURDIR)/$(BIN)/jempp JEMPP_MODULE_DIR=$(CURDIR)/$(BIN) tests/page.sh

T ?= 10
fuzz: all
	@$(MAKE) --no-print-directory SET=fuzz build/fuzz/fuzz
	@tests/fuzz.sh build/fuzz/fuzz $(BIN)/jempp $(T) $(READERS)

# Under qemu the tests of formats, options and the reference device. Big-endian machines are refused.
ARM64_TESTS ?= test_base test_config test_safetensors test_image test_rng test_model test_ops test_net test_golden \
               test_iterate test_chains test_train
arm64:
	@tools/arm64.sh $(ARM64)
	@$(MAKE) --no-print-directory SET=arm64 all tests TESTS="$(ARM64_TESTS)"
	@aarch64-linux-gnu-gcc -mbig-endian -fsyntax-only $(DEFINES) src/base/tensors.c 2>&1 | grep -m 1 'not on this host'
	@RUNNER="qemu-aarch64 -L $(ARM64)" tests/run.sh $(ARM64_TESTS:%=build/arm64/tests/%)

cov:
	@find build/cov -name '*.gcda' -delete 2>/dev/null || true
	@$(MAKE) --no-print-directory SET=cov run
	@find build/cov -name '*.gcda' | xargs gcov -n 2>/dev/null | awk -F"[':%]" '/^File/ { f = $$2 } \
	    /^Lines/ && f ~ /^src/ { split($$3, n, " of "); print $$2 "%" $$3 "  " f; \
	        hit += $$2 * n[2] / 100; all += n[2]; f = "" } \
	    END { printf "%.2f%% of %d  all of src/\n", 100 * hit / all, all }' | sort -n

bench: all
	$(BIN)/jempp bench $(BENCH)

MODEL ?= wrn-16-2
BATCH ?= 64
STEPS ?= 5
PYTHON ?= $(shell for p in python3 /usr/bin/python3; do $$p -c 'import torch' 2>/dev/null && echo $$p && break; done)
bench-torch: all
	$(or $(PYTHON),$(error no python3 with PyTorch: ./make.sh bench-torch installs one)) tools/bench_torch.py \
	    --jempp $(BIN)/jempp --model $(MODEL) --batch $(BATCH) --steps $(STEPS)
	$(PYTHON) tools/bench_inference.py --jempp $(BIN)/jempp --model $(MODEL)

demo: all
	tools/demo.sh

# Headers are laid out by hand. cppcheck follows values less well than clang-tidy, so two of its checks
# are off. omp.h is the compiler's: clang comes without one.
FORMATTED = $(wildcard src/*/*.c src/*/*.cu tests/*.c)
TIDIED    = $(filter-out src/base/err.c $(if $(ONEDNN),,$(CPU_SRC)) $(if $(CAIRO),,$(PLOT_SRC)) $(if $(HTTP),,$(HTTP_SRC)) $(MPI_SRC),$(wildcard src/*/*.c))
HEADERS   = $(wildcard include/*.h src/*/*.h src/*/*.cuh tests/*.h)
CLANG_SEES = -DISA=base -DJEMPP_NUMBER='""' -idirafter $(shell $(CC) -print-file-name=include)
NODES    ?= 225000# program states that clang's analyzer looks at in a function, which takes most of the time; its default
TIDYFLAGS = -std=c11 $(DEFINES) $(PKGFLAGS) $(CLANG_SEES) -include tools/tidy.h -Xclang -analyzer-config -Xclang max-nodes=$(NODES)
lint:
	printf '%s\n' $(FORMATTED) | xargs -P $$(nproc) -n 20 tools/format.sh
	LC_ALL=C.UTF-8 awk 'length > 100 { print FILENAME ":" FNR ": " length " columns"; bad = 1 } END { exit bad }' \
	    $(HEADERS) $(FORMATTED)
	printf '%s\n' $(filter-out $(MPI_SRC),$(wildcard src/*/*.c tests/*.c)) | xargs -P $$(nproc) -n 20 \
	    clang -fsyntax-only -std=c11 $(WARN) -Werror -Wno-unknown-pragmas $(DEFINES) $(PKGFLAGS) $(CLANG_SEES) \
	    -Itests -DJEMPP_TEST_DIR='""'
	cppcheck --quiet --std=c11 --enable=warning,portability,performance --inline-suppr \
	    --suppress=memleak --suppress=invalidFunctionArg --error-exitcode=1 -j $$(nproc) $(DEFINES) src
	printf '%s\n' $(TIDIED) | xargs -P $$(nproc) -I FILE \
	    clang-tidy --quiet --warnings-as-errors='*' FILE -- $(TIDYFLAGS) 2>/dev/null

format:
	tools/format.sh --fix $(FORMATTED)

# FILE:PLACE; the program does not need the library, which is for programs of others. uninstall takes away the
# same, modules of an earlier build with them, and the folders that are ours alone if they are empty.
INSTALLED = $(BIN)/jempp:$(BINDIR)/jempp \
            $(PARTS)/libjempp.so.$(VERSION):$(LIBDIR)/libjempp.so.$(VERSION) \
            $(PARTS)/libjempp.a:$(LIBDIR)/libjempp.a \
            $(PARTS)/jempp.pc:$(LIBDIR)/pkgconfig/jempp.pc \
            include/jempp.h:$(INCLUDEDIR)/jempp.h \
            $(PARTS)/man:$(DATADIR)/man/man1/jempp.1 \
            $(PARTS)/bash-completion:$(DATADIR)/bash-completion/completions/jempp \
            $(PARTS)/zsh-completion:$(ZSHDIR)/_jempp \
            $(foreach p,$(PRESETS),$(p):$(DATADIR)/jempp/$(p)) \
            $(foreach m,$(MODULES),$(m):$(MODULE_DIR)/$(notdir $(m)))
LINKS   = $(LIBDIR)/$(SONAME) $(LIBDIR)/libjempp.so
FOLDERS = $(MODULE_DIR) $(DATADIR)/jempp/presets $(DATADIR)/jempp
part    = $(word $(1),$(subst :, ,$(2)))

install: all $(foreach i,$(INSTALLED),$(call part,1,$(i)))
	$(Q)$(foreach i,$(INSTALLED),install -D -m $(if $(filter $(BIN)/jempp:%,$(i)),755,644) \
	    $(call part,1,$(i)) $(DESTDIR)$(call part,2,$(i)) &&) \
	for link in $(LINKS); do ln -sf libjempp.so.$(VERSION) $(DESTDIR)$$link; done
	@echo "installed in $(DESTDIR)$(PREFIX)"

uninstall:
	$(Q)rm -f $(foreach i,$(INSTALLED),$(DESTDIR)$(call part,2,$(i))) $(addprefix $(DESTDIR),$(LINKS)) \
	    $(DESTDIR)$(MODULE_DIR)/jempp-*.so
	$(Q)for folder in $(addprefix $(DESTDIR),$(FOLDERS)); do \
	    [ ! -d $$folder ] || rmdir --ignore-fail-on-non-empty $$folder; done

# A folder to carry to a machine that has the device's own libraries and little else: DEVICE=cuda, cpu, or
# nothing for all modules. What it cannot take in is copied to lib/, but for what a system has anyway.
BUNDLE         := build/jempp-$(VERSION)$(DEVICE:%=-%)
BUNDLE_MODULES := $(if $(DEVICE),$(filter %-$(DEVICE).so,$(MODULES)),$(MODULES))
BUNDLE_MPI     := $(filter %-mpi.so,$(MODULES))# with the MPI of the machine that it comes to
BUNDLE_TESTS   := $(patsubst tests/%.c,$(TEST_OBJ)/%,$(wildcard tests/test_golden.c tests/test_inception.c tests/test_iterate.c \
                    tests/test_muon.c $(patsubst jempp-%.so,tests/test_%*.c,$(notdir $(BUNDLE_MODULES)))))
IN_SYSTEM      := /(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|libcud[a-z]*|libcublas[A-Za-z]*|libnccl|ld-linux[^/]*)\.so
bundle:
	@mkdir -p build/bundle
	@$(MAKE) --no-print-directory SET=bundle bundle-folder

bundle-folder: $(BIN)/jempp $(BUNDLE_MODULES) $(BUNDLE_MPI) $(BUNDLE_TESTS)
	$(if $(BUNDLE_MODULES),,$(error DEVICE=$(DEVICE): its module cannot be built here; `make` says why))
	$(Q)rm -rf $(BUNDLE)
	$(Q)install -D -s -t $(BUNDLE)/bin $(BIN)/jempp
	$(Q)install -D -s -t $(BUNDLE)/lib/$(notdir $(MODULE_DIR)) -m 644 $(sort $(BUNDLE_MODULES) $(BUNDLE_MPI))
	$(Q)install -D -s -t $(BUNDLE)/tests $(BUNDLE_TESTS)
	$(Q)cp $(addprefix tests/,run.sh script.sh gpu_test.sh same_state.py) $(BUNDLE)/tests/ && cp LICENSE $(BUNDLE)/
	$(Q)install -D -m 644 -t $(BUNDLE)/tests/golden $(addprefix tests/golden/,net.safetensors iterate.safetensors inception.safetensors)
	$(Q)install -D -t $(BUNDLE)/tools tools/gpu_check.sh tools/gpu_ranks.sh
	$(Q){ $(CC) -print-file-name=libgomp.so.1; ldd $(BIN)/jempp $(filter-out $(BUNDLE_MPI),$(BUNDLE_MODULES)) $(BUNDLE_TESTS) | \
	    awk '$$2 == "=>" && $$3 ~ /^\// { print $$3 }'; } | awk -F/ '!seen[$$NF]++' | \
	    grep -vE '$(IN_SYSTEM)' | sort -u | xargs -r install -s -m 644 -t $(BUNDLE)/lib
	@kb=$$(du -s --apparent-size $(BUNDLE) | cut -f1); echo "$(BUNDLE): $$kb kB; in it, bin/jempp and tests/run.sh tests/test_* tests/*_test.sh"; \
	[ "$(DEVICE)" != cuda ] || [ $$kb -lt 10000 ] || { echo "more than 10 MB" && exit 1; }

# The Python package as one wheel, in build/dist/. It carries the library, the CPU device and their libraries, but for
# what a system has anyway. libarchive is linked in: its shared library needs 33 MB of others.
WHEEL         := $(OBJ)/wheel
WHEEL_PARTS   := $(WHEEL)/libjempp.so $(patsubst $(BIN)/%,$(WHEEL)/%,$(filter %-cpu.so,$(MODULES)))
WHEEL_LINK     = $(LINK) -shared -Wl,--disable-new-dtags,-rpath,'$$ORIGIN'
WHEEL_ARCHIVE := $(if $(filter /%,$(shell $(CC) -print-file-name=libarchive.a)),-l:libarchive.a,-larchive)
wheel:
	$(Q)python3 python/jempp_build.py build/dist

wheel-folder: $(WHEEL_PARTS)
	$(Q)rm -rf $(WHEEL)/lib
	$(Q)install -D -s -m 644 -t $(WHEEL)/lib $(WHEEL_PARTS)
	$(Q)ldd $(WHEEL_PARTS) | awk '$$2 == "=>" && $$3 ~ /^\// { print $$3 }' | grep -vE '$(IN_SYSTEM)' | sort -u | \
	    xargs -r install -s -m 644 -t $(WHEEL)/lib

$(WHEEL)/libjempp.so: $(call objects,$(LIB_SRC)) $(OBJ)/presets.o $(OBJ)/page.o
	@mkdir -p $(@D); echo "link  $@"
	$(Q)$(WHEEL_LINK) -Wl,-soname,libjempp.so -Wl,-z,defs -Wl,--exclude-libs,ALL $^ \
	    $(call libs_of,$(filter-out libarchive,$(LINKED))) $(WHEEL_ARCHIVE) -ldl -lm -o $@

$(WHEEL)/jempp-cpu.so: $(CPU_OBJ) $(BASE_OBJ)
	@mkdir -p $(@D); echo "link  $@"
	$(Q)$(WHEEL_LINK) $(OPENMP) $^ -ldnnl -lm -o $@

deb:            # the cuda package where the cuda module can be built
	tools/deb.sh $(VERSION) $(if $(CUDNN),pkg.jempp.cuda)

clean:
	rm -rf build

help:
	@echo "make              the program and its modules, in build/"
	@echo "make test         every test; TESTS=\"test_ops check_layers\" selects some"
	@echo "make asan|poison  the same tests with sanitizers and new device memory full of NaN | the latter alone"
	@echo "make tsan         the tests of the thread that writes checkpoints, with the thread sanitizer"
	@echo "make page         the live page in a headless chromium; screenshots in build/page"
	@echo "make fuzz         fuzzes every reader of files, T=10 seconds each; READERS=\"png idx\" selects some"
	@echo "make arm64        cross-compiles; the tests of the reference device under qemu"
	@echo "make cov          the same tests, and their line coverage, file by file"
	@echo "make bench        speed of ops and whole iterations; BENCH=\"--model wrn-28-10\" are its options"
	@echo "make bench-torch  our step and inference against PyTorch's; MODEL= BATCH= STEPS= PYTHON="
	@echo "make demo         trains a small model in minutes and shows its samples"
	@echo "make lint|format  style and static checks | reformat the .c files"
	@echo "make install      to PREFIX (now $(PREFIX)), under DESTDIR; make uninstall"
	@echo "make bundle       a folder for machines without these libraries; DEVICE=cuda or cpu: with that device only"
	@echo "make wheel        the Python package with the CPU device, in build/dist/; pip install . builds the same"
	@echo "make deb          Debian packages, in build/deb/"
	@echo "make clean        removes build/"
	@echo "Variables: WERROR=1 V=1 CC= CFLAGS= LDFLAGS=; ONEDNN= CUDA= MPI= CAIRO= HTTP= switch a part off"

# ---- rules
Q := $(if $(V),,@)
MISSING := $(if $(filter clean help lint format arm64 uninstall,$(MAKECMDGOALS)),,$(shell for p in $(PACKAGES); do $(PKG_CONFIG) --exists $$p || echo $$p; done))
$(if $(MISSING),$(error missing: $(MISSING). ./make.sh installs what is needed))

# Files that change with their text alone: what depends on one is made again when the text changes.
define text_rule
$(OBJ)/$(1): FORCE
	@mkdir -p $$(@D); echo '$(2)' | cmp -s - $$@ || echo '$(2)' > $$@
endef
REVISION := $(shell git describe --always --dirty 2>/dev/null)
$(eval $(call text_rule,flags,$(CC) $(BASEFLAGS) $(CPPFLAGS) $(CFLAGS) $(FAST) $(GPUS)))
$(eval $(call text_rule,revision,$(VERSION) $(REVISION)))
$(eval $(call text_rule,places,$(PREFIX) $(INCLUDEDIR) $(MODULE_DIR) $(MODULE_NEAR) $(VERSION)))

$(OBJ)/base/version.o: $(OBJ)/revision
$(OBJ)/base/version.o: DEFINE = -DJEMPP_NUMBER='"$(VERSION)"' $(if $(REVISION),-DJEMPP_REVISION='"$(REVISION)"')
$(OBJ)/base/module.o: $(OBJ)/places
$(OBJ)/base/module.o: DEFINE = -DJEMPP_MODULES='"$(MODULE_DIR)"' -DJEMPP_MODULES_NEAR='"$(MODULE_NEAR)"' \
    -DJEMPP_MODULES_DEBIAN='"/usr/lib/$(MULTIARCH)/$(notdir $(MODULE_DIR))"'
$(call objects,$(CPU_SRC) src/dev/dense.c src/dev/singular.c): DEFINE = $(FAST)
$(call objects,$(MPI_SRC)): CC = $(MPI)

$(OBJ)/%.o: src/%.c $(OBJ)/flags
	@mkdir -p $(@D); echo "cc    $<"
	$(Q)$(COMPILE) $(DEFINE) -c $< -o $@

define isa_rule
$(OBJ)/%-$(1).o: src/%.c $(OBJ)/flags
	@mkdir -p $$(@D); echo "cc    $$< ($(1))"
	$(Q)$$(COMPILE) $$(FAST) $$(ISAFLAGS.$(1)) -DISA=$(1) -c $$< -o $$@
endef
$(foreach i,$(ISAS),$(eval $(call isa_rule,$(i))))

$(filter $(OBJ)/dev/cuda_hopper%,$(CUDA_OBJ)): SPECIAL.90 := a# instructions that capability 9.0 alone has
$(OBJ)/%.o: src/%.cu $(OBJ)/flags
	@mkdir -p $(@D); echo "nvcc  $<"
	$(Q)$(NVCC) $(NVCCFLAGS) -MMD -MP -c $< -o $@

# The presets are part of the program: a text of C made from presets/.
$(OBJ)/presets.c: tools/embed.sh $(PRESETS) presets
	@mkdir -p $(@D); echo "embed presets"
	$(Q)tools/embed.sh $(PRESETS) > $@
$(OBJ)/presets.o: $(OBJ)/presets.c $(OBJ)/flags
	$(Q)$(COMPILE) -c $< -o $@

# So is the live page.
$(OBJ)/page.c: tools/embed_page.sh $(PAGE) src/serve/page
	@mkdir -p $(@D); echo "embed page"
	$(Q)tools/embed_page.sh $(PAGE) > $@
$(OBJ)/page.o: $(OBJ)/page.c $(OBJ)/flags
	$(Q)$(COMPILE) -c $< -o $@

EMBEDDED := $(OBJ)/presets.o $(OBJ)/page.o
LIB_OBJ := $(call objects,$(LIB_SRC)) $(EMBEDDED)
$(LIB): $(LIB_OBJ)
	@echo "ar    $@"
	$(Q)rm -f $@; $(AR) rcs $@ $^

$(PARTS)/libjempp.so.$(VERSION): $(LIB_OBJ)
	@mkdir -p $(@D); echo "link  $@"
	$(Q)$(LINK) -shared -Wl,-soname,$(SONAME) -Wl,-z,defs $^ $(LIBS) -o $@

# One object, so that names which are not in jempp.h can be taken away: a program may have its own.
$(PARTS)/libjempp.a: $(LIB_OBJ)
	@mkdir -p $(@D); echo "ar    $@"
	$(Q)$(CC) -r -nostdlib $^ -o $(@:.a=.o)
	$(Q)$(shell $(CC) -print-prog-name=objcopy) --localize-hidden $(@:.a=.o)
	$(Q)rm -f $@; $(AR) rcs $@ $(@:.a=.o)

define PC
prefix=$(PREFIX)
libdir=$(LIBDIR)
includedir=$(INCLUDEDIR)

Name: jempp
Description: joint energy-based models: train, classify, score, sample
Version: $(VERSION)
Libs: -L$${libdir} -ljempp
Libs.private: $(LIBS)
Cflags: -I$${includedir}
endef
$(PARTS)/jempp.pc: export TEXT = $(PC)
$(PARTS)/jempp.pc: $(OBJ)/places Makefile
	@mkdir -p $(@D); echo "$$TEXT" > $@

$(PARTS)/man $(PARTS)/bash-completion $(PARTS)/zsh-completion: $(BIN)/jempp
	@mkdir -p $(@D)
	$(Q)$(BIN)/jempp $(@F) > $@

$(BIN)/jempp: $(call objects,$(CLI_SRC)) $(LIB)
	@echo "link  $@"
	$(Q)$(LINK) $^ $(LIBS) -o $@

$(BIN)/jempp-cpu.so: $(CPU_OBJ) $(BASE_OBJ)
	@echo "link  $@"
	$(Q)$(LINK) $(OPENMP) -shared $^ -ldnnl -lm -o $@

$(BIN)/jempp-mpi.so: $(call objects,$(MPI_SRC)) $(BASE_OBJ)
	@echo "link  $@"
	$(Q)$(LINK) -shared $^ -lm -o $@
$(BIN)/jempp-mpi.so: CC = $(MPI)

$(BIN)/jempp-serve.so: $(call objects,$(HTTP_SRC)) $(BASE_OBJ)
	@echo "link  $@"
	$(Q)$(LINK) -shared $^ -lmicrohttpd -lpthread -o $@

$(BIN)/jempp-plot.so: $(call objects,$(PLOT_SRC)) $(BASE_OBJ)
	@echo "link  $@"
	$(Q)$(LINK) -shared $^ -lcairo -lm -o $@

$(BIN)/jempp-cuda.so: $(CUDA_OBJ) $(BASE_OBJ)
	@echo "link  $@"
	$(Q)$(NVCC) -shared -Xlinker=--as-needed $(if $(filter asan,$(SET)),-Xcompiler=-fsanitize=address) \
	    $^ -lcudnn -o $@

$(TEST_OBJ)/%.o: tests/%.c $(OBJ)/flags
	@mkdir -p $(@D); echo "cc    $<"
	$(Q)$(COMPILE) -Itests $(if $(filter bundle,$(SET)),,-DJEMPP_TEST_DIR='"$(CURDIR)/tests"') -c $< -o $@

$(TEST_OBJ)/%: $(TEST_OBJ)/%.o $(LIB)
	@echo "link  $@"
	$(Q)$(LINK) $^ $(call libs_of,$(TEST_PACKAGES)) $(LIBS) $(TEST_LIBS) -o $@
$(TEST_OBJ)/test_fid: TEST_LIBS = -lgomp# to set the number of threads

# What the test of faults replaces, so that it can fail.
FAULTS := malloc calloc realloc aligned_alloc posix_memalign strdup open_memstream open fopen fdopen fwrite \
          fflush fsync fclose rename mkdir ftruncate flock fread gzread
$(TEST_OBJ)/test_faults: LDFLAGS += -rdynamic $(FAULTS:%=-Wl,--wrap=%)
$(TEST_OBJ)/test_faults: $(if $(filter %-cpu.so,$(MODULES)),| $(OBJ)/faults/jempp-cpu.so)
$(OBJ)/faults/jempp-cpu.so: $(CPU_OBJ) $(BASE_OBJ)
	@mkdir -p $(@D); echo "link  $@"
	$(Q)$(LINK) $(OPENMP) $(FAULTS:%=-Wl,--wrap=%) -shared $^ -ldnnl -lm -o $@

$(OBJ)/fuzz: $(TEST_OBJ)/fuzz.o $(LIB)
	@echo "link  $@"
	$(Q)$(LINK) -fsanitize=fuzzer $^ $(LIBS) -o $@

-include $(sort $(shell find $(OBJ) $(TEST_OBJ) -name '*.d' 2>/dev/null))
