// test_data.c - published image sets: what good files give; bad ones of every kind are refused.
#include "data_files.h"
#include <zlib.h>

static void put_gz(const char *name, const void *data, size_t n) {
    gzFile f = gzopen(in_root(name), "wb");
    assert_non_null(f);
    assert_int_equal(gzwrite(f, data, (unsigned)n), n);
    assert_int_equal(gzclose(f), Z_OK);
}

// ---- CIFAR

enum { BATCH = 10000 * RECORD };

static void put_cifar10(void) {
    for (int i = 1; i <= 5; i++) {
        char name[64];
        snprintf(name, sizeof name, "cifar-10-batches-bin/data_batch_%d.bin", i);
        put_zeros(name, BATCH);
    }
}

static void cifar10_is_its_five_batches_in_order(void **state) {
    (void)state;
    put_cifar10();
    poke("cifar-10-batches-bin/data_batch_3.bin", 7 * RECORD, 9);        // label of record 7
    poke("cifar-10-batches-bin/data_batch_3.bin", 7 * RECORD + 1, 11);   // its first red pixel
    poke("cifar-10-batches-bin/data_batch_3.bin", 8 * RECORD - 1, 12);   // its last blue one
    Set s;
    load(&s, "cifar10", HALF_TRAIN);
    assert_int_equal(s.n, 50000);
    assert_int_equal(s.y[20006], 0);
    assert_int_equal(s.y[20007], 9);
    assert_int_equal(s.x[20007 * 3072], 11);
    assert_int_equal(s.x[20008 * 3072 - 1], 12);
    assert_int_equal(s.flip, 1);
    assert_string_equal(s.class_name[9], "truck");
    assert_string_equal(s.from, in_root("cifar-10-batches-bin"));
    set_free(&s);
}

static void a_batch_of_another_size_is_refused_with_both_sizes(void **state) {
    (void)state;
    put_cifar10();
    put_zeros("cifar-10-batches-bin/data_batch_3.bin", BATCH - RECORD);
    refused("cifar10", HALF_TRAIN, "data_batch_3.bin: 30726927 bytes, expected 30730000");
    put_zeros("cifar-10-batches-bin/data_batch_3.bin", BATCH + 1);
    refused("cifar10", HALF_TRAIN, "data_batch_3.bin: 30730001 bytes, expected 30730000");
}

static void a_label_out_of_range_is_named_with_its_record(void **state) {
    (void)state;
    put_cifar10();
    poke("cifar-10-batches-bin/data_batch_4.bin", 42 * RECORD, 10);
    refused("cifar10", HALF_TRAIN, "data_batch_4.bin: record 42: label 10, expected 0 to 9");
}

static void a_missing_half_is_an_error_and_the_other_half_is_served(void **state) {
    (void)state;
    put_zeros("cifar-10-batches-bin/test_batch.bin", BATCH);
    Set s;
    load(&s, "cifar10", HALF_TEST);
    assert_int_equal(s.n, 10000);
    set_free(&s);
    refused("cifar10", HALF_TRAIN,
            "cifar10: no training images (jempp data fetch cifar10 downloads them)");
    refused("cifar10", HALF_TRAIN, "looked for cifar-10-batches-bin/data_batch_1.bin in");
    refused("cifar10", HALF_TRAIN, root);
}

static void one_missing_file_is_named(void **state) {
    (void)state;
    put_cifar10();
    unlink(in_root("cifar-10-batches-bin/data_batch_4.bin"));
    refused("cifar10", HALF_TRAIN, "data_batch_4.bin is missing in");
}

static void the_python_edition_is_told_apart(void **state) {
    (void)state;
    make_folder("cifar-10-batches-py");
    refused("cifar10", HALF_TRAIN,
            "cifar-10-batches-py is its Python edition, which is not supported");
}

static void a_complete_folder_wins_over_an_incomplete_one(void **state) {
    (void)state;
    put("cifar-10-batches-bin/data_batch_1.bin", "x", 1);
    char own[sizeof root];
    strcpy(own, root);
    strcpy(root + strlen(root) - 6, "XXXXXX");
    assert_non_null(mkdtemp(root));
    put_cifar10();
    setenv("JEMPP_DATA", root, 1);
    const DataOpts o = { .dir = own };
    Set s;
    Err err = { 0 };
    const int rc = set_load(&s, "cifar10", HALF_TRAIN, &o, &err);
    assert_int_equal(remove_root(NULL), 0);
    strcpy(root, own);
    assert_int_equal(rc, 0);
    assert_int_equal(s.n, 50000);
    set_free(&s);
}

static void cifar100_has_fine_labels_after_the_coarse_ones(void **state) {
    (void)state;
    put_zeros("cifar-100-binary/test.bin", 10000 * 3074);
    poke("cifar-100-binary/test.bin", 3074, 19);
    poke("cifar-100-binary/test.bin", 3074 + 1, 99);
    poke("cifar-100-binary/test.bin", 3074 + 2, 5);
    Set s;
    load(&s, "cifar100", HALF_TEST);
    assert_int_equal(s.y[1], 99);
    assert_int_equal(s.x[3072], 5);
    assert_string_equal(s.class_name[0], "apple");
    assert_string_equal(s.class_name[99], "worm");
    set_free(&s);
    poke("cifar-100-binary/test.bin", 3074 + 1, 100);
    refused("cifar100", HALF_TEST, "test.bin: record 1: label 100, expected 0 to 99");
}

static void names_come_from_the_names_file_which_must_have_them_all(void **state) {
    (void)state;
    put_zeros("cifar-10-batches-bin/test_batch.bin", BATCH);
    const char ten[] = "a\nb\nc\nd\ne\nf\ng\nh\ni\nlast\n\n";
    put("cifar-10-batches-bin/batches.meta.txt", ten, strlen(ten));
    Set s;
    load(&s, "cifar10", HALF_TEST);
    assert_string_equal(s.class_name[9], "last");
    set_free(&s);
    put("cifar-10-batches-bin/batches.meta.txt", ten, 4);
    refused("cifar10", HALF_TEST, "batches.meta.txt: 2 class names, expected 10");
}

static void a_cifar_file_has_as_many_classes_as_its_labels_need(void **state) {
    (void)state;
    put_zeros("mine.bin", 3 * RECORD);
    poke("mine.bin", RECORD, 4);
    Set s;
    load(&s, named("cifar-file:", in_root("mine.bin")), HALF_TEST);
    assert_int_equal(s.n, 3);
    assert_int_equal(s.classes, 10);
    assert_int_equal(s.y[1], 4);
    set_free(&s);
    poke("mine.bin", RECORD, 46);
    load(&s, named("cifar-file:", in_root("mine.bin")), HALF_TEST);
    assert_int_equal(s.classes, 47);
    assert_string_equal(s.class_name[46], "46");
    set_free(&s);
}

static void a_cifar_file_holds_whole_records(void **state) {
    (void)state;
    put_zeros("mine.bin", 3 * RECORD + 1);
    refused(named("cifar-file:", in_root("mine.bin")), HALF_TEST,
            "9220 bytes, expected a multiple of 3073");
    put_zeros("mine.bin", 0);
    refused(named("cifar-file:", in_root("mine.bin")), HALF_TEST, "0 bytes");
    refused(named("cifar-file:", in_root("none.bin")), HALF_TEST, "none.bin: No such file");
    refused(named("cifar-file:", root), HALF_TEST, "not a regular file");
}

// ---- IDX

enum { PIXELS = 28 * 28, IMAGES = 16 + 2 * PIXELS };

static const uint8_t LABELS[] = { 0, 0, 8, 1, 0, 0, 0, 2, 7, 3 };
static const char *const MNIST_IMAGES = "mnist/t10k-images-idx3-ubyte";
static const char *const MNIST_LABELS = "mnist/t10k-labels-idx1-ubyte";

static void idx_images(uint8_t file[IMAGES]) {
    const uint8_t head[16] = { 0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 28, 0, 0, 0, 28 };
    memcpy(file, head, sizeof head);
    for (int i = 0; i < 2 * PIXELS; i++) file[16 + i] = (uint8_t)(i % 251);
}

static void put_mnist(void) {
    uint8_t file[IMAGES];
    idx_images(file);
    put(MNIST_IMAGES, file, sizeof file);
    put(MNIST_LABELS, LABELS, sizeof LABELS);
}

static void check_mnist(const char *folder) {
    Set s;
    load(&s, "mnist", HALF_TEST);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.c, 1);
    assert_int_equal(s.flip, 0);
    assert_int_equal(s.y[0], 7);
    assert_int_equal(s.y[1], 3);
    for (int i = 0; i < 2 * PIXELS; i++) assert_int_equal(s.x[i], i % 251);
    assert_string_equal(s.from, in_root(folder));
    set_free(&s);
}

static void idx_files_are_read_plain_gzipped_and_in_torchvisions_folders(void **state) {
    (void)state;
    put_mnist();
    check_mnist("mnist");
    uint8_t file[IMAGES];
    idx_images(file);
    unlink(in_root(MNIST_IMAGES));
    put_gz("mnist/t10k-images-idx3-ubyte.gz", file, sizeof file);
    check_mnist("mnist");
    make_folder("MNIST");
    assert_int_equal(rename(in_root("mnist"), in_root("MNIST/raw")), 0);
    check_mnist("MNIST/raw");
}

static void idx_headers_that_lie_are_refused(void **state) {
    (void)state;
    put_mnist();
    poke(MNIST_IMAGES, 3, 1);
    refused("mnist", HALF_TEST, "t10k-images-idx3-ubyte: starts with 00000801, expected 00000803");
    put_mnist();
    poke(MNIST_IMAGES, 15, 32);
    refused("mnist", HALF_TEST, "dimension 2 is 32, expected 28");
    put_mnist();
    poke(MNIST_IMAGES, 4, 255);
    refused("mnist", HALF_TEST, "4278190082 records do not fit into 1584 bytes");
    put_mnist();
    poke(MNIST_IMAGES, 7, 0);
    refused("mnist", HALF_TEST, "no pictures");
    put_mnist();
    poke(MNIST_LABELS, 7, 3);
    refused("mnist", HALF_TEST, "3 labels for 2 pictures");
    put_mnist();
    poke(MNIST_LABELS, 9, 10);
    refused("mnist", HALF_TEST, "t10k-labels-idx1-ubyte: record 1: label 10, expected 0 to 9");
}

static void idx_files_that_are_too_short_or_too_long_are_refused(void **state) {
    (void)state;
    put_mnist();
    assert_int_equal(truncate(in_root(MNIST_IMAGES), IMAGES - 1), 0);
    refused("mnist", HALF_TEST, "ends after 1583 bytes of contents, expected 1 more");
    assert_int_equal(truncate(in_root(MNIST_IMAGES), IMAGES + 1), 0);
    refused("mnist", HALF_TEST, "t10k-images-idx3-ubyte: longer than its header says");
    put_mnist();
    assert_int_equal(truncate(in_root(MNIST_LABELS), 9), 0);
    refused("mnist", HALF_TEST, "t10k-labels-idx1-ubyte: ends after 9 bytes");
    assert_int_equal(truncate(in_root(MNIST_LABELS), 3), 0);
    refused("mnist", HALF_TEST, "ends after 3 bytes");
    assert_int_equal(truncate(in_root(MNIST_LABELS), 0), 0);
    refused("mnist", HALF_TEST, "ends after 0 bytes");
}

static void damaged_gzip_files_are_refused(void **state) {
    (void)state;
    put_mnist();
    uint8_t file[IMAGES];
    idx_images(file);
    unlink(in_root(MNIST_IMAGES));
    const char *name = "mnist/t10k-images-idx3-ubyte.gz";
    put_gz(name, file, sizeof file);
    struct stat st;
    assert_int_equal(stat(in_root(name), &st), 0);
    poke(name, st.st_size - 8, 0x55); // the checksum's first byte
    poke(name, st.st_size - 7, 0x55);
    refused("mnist", HALF_TEST, "incorrect data check");
    put_gz(name, file, sizeof file);
    assert_int_equal(truncate(in_root(name), st.st_size / 2), 0);
    refused("mnist", HALF_TEST, "unexpected end of file");
}

static void a_gzip_bomb_is_not_inflated(void **state) {
    (void)state;
    put_mnist();
    unlink(in_root(MNIST_IMAGES));
    uint8_t *file = calloc(1, 64 << 20); // 64 MiB of zeros in 64 KiB
    assert_non_null(file);
    idx_images(file);
    put_gz("mnist/t10k-images-idx3-ubyte.gz", file, 64 << 20);
    free(file);
    refused("mnist", HALF_TEST, "longer than its header says");
}

// ---- SVHN

typedef struct {
    uint8_t *p;
    size_t n;
} Bytes;

static void add(Bytes *b, const void *p, size_t n) {
    b->p = realloc(b->p, b->n + n + 8);
    assert_non_null(b->p);
    memcpy(b->p + b->n, p, n);
    b->n += n;
}

static void add_words(Bytes *b, int n, ...) {
    va_list ap;
    va_start(ap, n);
    for (int i = 0; i < n; i++) add(b, &(int32_t){ va_arg(ap, int) }, 4);
    va_end(ap);
}

// One array of a MATLAB 5 file, deflated as MATLAB does: flags, dimensions, name, numbers.
static void add_array(Bytes *mat, const char *name, int class, int type, int rank,
                      const int32_t *dim, const void *data, size_t n) {
    Bytes b = { 0 };
    add_words(&b, 6, 14, 0, 6, 8, class, 0);
    add_words(&b, 2, 5, 4 * rank);
    add(&b, dim, 4 * (size_t)rank);
    add_words(&b, 2, 1, 1);
    add(&b, (char[8]){ name[0] }, 8);
    add_words(&b, 2, type, (int)n);
    add(&b, data, n);
    add(&b, (char[8]){ 0 }, (8 - n % 8) % 8);
    memcpy(b.p + 4, &(int32_t){ (int32_t)b.n - 8 }, 4);
    uLongf size = compressBound(b.n);
    uint8_t *z = malloc(size);
    assert_non_null(z);
    assert_int_equal(compress(z, &size, b.p, b.n), Z_OK);
    add_words(mat, 2, 15, (int)size);
    add(mat, z, size);
    free(z);
    free(b.p);
}

enum {
    UINT8_CLASS = 9,
    DOUBLE_CLASS = 6,
    INT16_CLASS = 10,
    UINT8_TYPE = 2,
    INT16_TYPE = 3,
    DOUBLE_TYPE = 9
};
static const char *const SVHN_FILE = "svhn/test_32x32.mat";

static Bytes mat_start(void) {
    Bytes mat = { 0 };
    char head[128];
    memset(head, ' ', sizeof head);
    memcpy(head, "MATLAB 5.0 MAT-file", 19);
    memcpy(head + 124, "\x00\x01IM", 4);
    add(&mat, head, sizeof head);
    return mat;
}

static void mat_end(Bytes *mat) {
    put(SVHN_FILE, mat->p, mat->n);
    free(mat->p);
}

static uint8_t digit_pixel(int row, int col, int c, int i) {
    return (uint8_t)(row + 3 * col + 50 * c + 100 * i);
}

static void add_pictures(Bytes *mat) {
    static uint8_t x[2 * 3072];
    uint8_t *p = x;
    for (int i = 0; i < 2; i++)
        for (int c = 0; c < 3; c++)
            for (int col = 0; col < 32; col++)
                for (int row = 0; row < 32; row++) *p++ = digit_pixel(row, col, c, i);
    add_array(mat, "X", UINT8_CLASS, UINT8_TYPE, 4, (int32_t[]){ 32, 32, 3, 2 }, x, sizeof x);
}

static void check_svhn(void) {
    Set s;
    load(&s, "svhn", HALF_TEST);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.flip, 0);
    assert_int_equal(s.y[0], 0); // 10 in the file
    assert_int_equal(s.y[1], 7);
    const uint8_t *p = s.x;
    for (int i = 0; i < 2; i++)
        for (int c = 0; c < 3; c++)
            for (int row = 0; row < 32; row++)
                for (int col = 0; col < 32; col++)
                    assert_int_equal(*p++, digit_pixel(row, col, c, i));
    set_free(&s);
}

static void put_svhn(int label) {
    Bytes mat = mat_start();
    add_pictures(&mat);
    const uint8_t y[] = { 10, (uint8_t)label };
    add_array(&mat, "y", UINT8_CLASS, UINT8_TYPE, 2, (int32_t[]){ 2, 1 }, y, 2);
    mat_end(&mat);
}

static void svhn_rows_become_rows_and_ten_becomes_zero(void **state) {
    (void)state;
    put_svhn(7);
    check_svhn();
    assert_int_equal(rename(in_root(SVHN_FILE), in_root("test_32x32.mat")), 0);
    check_svhn(); // found without the folder too
}

static void svhn_labels_may_be_doubles_however_they_are_stored(void **state) {
    (void)state;
    Bytes mat = mat_start();
    add_pictures(&mat);
    const double y[] = { 10, 7 };
    add_array(&mat, "y", DOUBLE_CLASS, DOUBLE_TYPE, 2, (int32_t[]){ 2, 1 }, y, sizeof y);
    mat_end(&mat);
    check_svhn();
    mat = mat_start();
    add_pictures(&mat);
    add_array(&mat, "y", DOUBLE_CLASS, UINT8_TYPE, 2, (int32_t[]){ 1, 2 }, (uint8_t[]){ 10, 7 }, 2);
    mat_end(&mat);
    check_svhn();
}

static void svhn_labels_out_of_range_are_refused(void **state) {
    (void)state;
    put_svhn(11);
    refused("svhn", HALF_TEST, "test_32x32.mat: record 1: label 11, expected 1 to 10");
    put_svhn(0);
    refused("svhn", HALF_TEST, "record 1: label 0, expected 1 to 10");
    Bytes mat = mat_start();
    add_pictures(&mat);
    const double y[] = { 10, 0.0 / 0.0 };
    add_array(&mat, "y", DOUBLE_CLASS, DOUBLE_TYPE, 2, (int32_t[]){ 2, 1 }, y, sizeof y);
    mat_end(&mat);
    refused("svhn", HALF_TEST, "record 1: label");
}

static void svhn_arrays_of_another_kind_are_refused(void **state) {
    (void)state;
    static uint8_t data[2 * 3072];
    const struct {
        int class, type, rank;
        int32_t dim[4];
        const char *why;
    } bad[] = {
        { UINT8_CLASS,
          UINT8_TYPE,
          4,
          { 32, 32, 1, 2 },
          "X is not an array of 32 x 32 x 3 x n bytes" },
        { UINT8_CLASS, UINT8_TYPE, 2, { 32, 32 }, "X is not an array of 32 x 32 x 3 x n bytes" },
        { INT16_CLASS,
          INT16_TYPE,
          4,
          { 32, 32, 3, 1 },
          "X is not an array of 32 x 32 x 3 x n bytes" },
        { UINT8_CLASS,
          UINT8_TYPE,
          4,
          { 32, 32, 3, 0 },
          "X is not an array of 32 x 32 x 3 x n bytes" },
        { UINT8_CLASS,
          UINT8_TYPE,
          4,
          { 32, 32, 3, 1 << 20 },
          "X has 6144 bytes for 1048576 pictures" },
        { UINT8_CLASS,
          UINT8_TYPE,
          4,
          { 32, 32, 3, -1 },
          "X has 6144 bytes for 4294967295 pictures" },
        { UINT8_CLASS, UINT8_TYPE, 4, { 32, 32, 3, 3 }, "X has 6144 bytes for 3 pictures" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Bytes mat = mat_start();
        add_array(&mat, "X", bad[i].class, bad[i].type, bad[i].rank, bad[i].dim, data, sizeof data);
        add_array(&mat, "y", UINT8_CLASS, UINT8_TYPE, 2, (int32_t[]){ 2, 1 }, "\1\2", 2);
        mat_end(&mat);
        refused("svhn", HALF_TEST, bad[i].why);
    }
    Bytes mat = mat_start();
    add_pictures(&mat);
    add_array(&mat, "y", UINT8_CLASS, UINT8_TYPE, 2, (int32_t[]){ 3, 1 }, "\1\2\3", 3);
    mat_end(&mat);
    refused("svhn", HALF_TEST, "y has 3 labels, X 2 pictures");
    mat = mat_start();
    add_pictures(&mat);
    mat_end(&mat);
    refused("svhn", HALF_TEST, "no variable 'y'");
}

static void svhn_files_that_are_cut_short_anywhere_are_refused(void **state) {
    (void)state;
    put_svhn(7);
    struct stat st;
    assert_int_equal(stat(in_root(SVHN_FILE), &st), 0);
    for (off_t n = st.st_size - 1; n >= 0; n -= n > 300 ? 37 : 1) {
        assert_int_equal(truncate(in_root(SVHN_FILE), n), 0);
        refused("svhn", HALF_TEST, "test_32x32.mat");
    }
    put(SVHN_FILE, (char[140]){ "\x89HDF\r\n\x1a\n" }, 140);
    refused("svhn", HALF_TEST, "not a MATLAB 5 file");
}

// ---- what the list of sets says

static void the_list_says_which_halves_were_found(void **state) {
    (void)state;
    put_mnist();
    SetInfo info[16];
    const int n = data_list(root, info, 16);
    assert_int_equal(n, 6);
    assert_int_equal(data_list(root, info, 2), 2);
    for (int i = 0; i < n; i++) {
        if (!strcmp(info[i].name, "fashion-mnist")) continue; // the system may have it
        const int mnist = !strcmp(info[i].name, "mnist"), shapes = !strcmp(info[i].name, "shapes");
        assert_int_equal(info[i].train, shapes);
        assert_int_equal(info[i].test, shapes || mnist);
        assert_int_equal(info[i].fetchable, !shapes);
        assert_string_equal(info[i].found, mnist    ? in_root("mnist")
                                           : shapes ? "drawn in memory"
                                                    : "");
    }
}

// Before, any file of the right name was a set.
static void the_list_names_a_file_that_is_cut_short(void **state) {
    (void)state;
    SetInfo info[16];
    put_mnist();
    const int n = data_list(root, info, 16);
    int at = 0;
    while (at < n && strcmp(info[at].name, "mnist") != 0) at++;
    assert_int_equal(info[at].test, 1);
    assert_string_equal(info[at].damaged, "");
    struct stat st;
    char path[256];
    snprintf(path, sizeof path, "%s", in_root("mnist/t10k-images-idx3-ubyte"));
    if (stat(path, &st))
        snprintf(path, sizeof path, "%s", in_root("mnist/t10k-images-idx3-ubyte.gz"));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 5), 0);
    data_list(root, info, 16);
    assert_int_equal(info[at].test, 0);
    assert_string_equal(info[at].damaged, "t10k-images-idx3-ubyte");
}

// What the list says about a set: the damaged file, or "" for a half that is whole.
static void assert_listed(const char *name, Half half, const char *damaged) {
    SetInfo info[16];
    const int n = data_list(root, info, 16);
    for (int i = 0; i < n; i++) {
        if (strcmp(info[i].name, name) != 0) continue;
        assert_string_equal(info[i].damaged, damaged);
        assert_int_equal(half == HALF_TEST ? info[i].test : info[i].train, !damaged[0]);
        return;
    }
    fail_msg("%s is not listed", name);
}

static void cut_short(const char *name, int by) {
    struct stat st;
    assert_int_equal(stat(in_root(name), &st), 0);
    assert_int_equal(truncate(in_root(name), st.st_size - by), 0);
}

static void the_list_names_cut_files_of_every_format(void **state) {
    (void)state;
    put_svhn(1);
    assert_listed("svhn", HALF_TEST, "");
    for (int by = 1; by < 300; by += 37) {
        put_svhn(1);
        cut_short(SVHN_FILE, by);
        assert_listed("svhn", HALF_TEST, "test_32x32.mat");
    }
    put_cifar10();
    assert_listed("cifar10", HALF_TRAIN, "");
    cut_short("cifar-10-batches-bin/data_batch_3.bin", 1);
    assert_listed("cifar10", HALF_TRAIN, "data_batch_3.bin");
    uint8_t file[IMAGES];
    put_mnist();
    idx_images(file);
    assert_int_equal(unlink(in_root(MNIST_IMAGES)), 0);
    put_gz("mnist/t10k-images-idx3-ubyte.gz", file, sizeof file);
    assert_listed("mnist", HALF_TEST, "");
    for (int by = 1; by < 40; by++) {
        put_gz("mnist/t10k-images-idx3-ubyte.gz", file, sizeof file);
        cut_short("mnist/t10k-images-idx3-ubyte.gz", by);
        assert_listed("mnist", HALF_TEST, "t10k-images-idx3-ubyte");
    }
}

// ---- the published files, where they are

static uint64_t pixel_sum(const Set *s) {
    uint64_t sum = 0;
    for (size_t i = 0; i < s->n * (size_t)(s->c * s->side * s->side); i++) sum += s->x[i];
    return sum;
}

static void check_counts(const Set *s, const int *count) {
    int found[100] = { 0 };
    for (size_t i = 0; i < s->n; i++) found[s->y[i]]++;
    for (int i = 0; i < s->classes; i++)
        assert_int_equal(found[i], count ? count[i] : (int)s->n / s->classes);
}

// Loads a half that must be there; skips the test where the folder with the set is not.
static void load_published(Set *s, const char *name, const char *folder, Half half) {
    const char *dir = getenv("JEMPP_TEST_DATA");
    char path[512];
    Err err = { 0 };
    if (!dir || path_join(path, sizeof path, dir, folder, NULL) || !dir_exists(path)) {
        print_message("no %s in $JEMPP_TEST_DATA\n", folder);
        skip();
    }
    if (set_load(s, name, half, &(DataOpts){ .dir = dir }, &err)) fail_msg("%s", err.msg);
}

static void published_cifar10_is_read_right(void **state) {
    (void)state;
    Set s;
    load_published(&s, "cifar10", "cifar-10-batches-bin", HALF_TRAIN);
    assert_int_equal(s.n, 50000);
    check_counts(&s, NULL);
    assert_int_equal(s.y[0], 6);
    assert_int_equal(s.x[1], 43);
    assert_int_equal(s.y[49997], 9);
    assert_int_equal(s.x[49999 * 3072], 229);
    assert_int_equal(s.x[50000 * 3072 - 1], 161);
    set_free(&s);
    load_published(&s, "cifar10", "cifar-10-batches-bin", HALF_TEST);
    check_counts(&s, NULL);
    assert_string_equal(s.class_name[s.y[0]], "cat");
    assert_int_equal(pixel_sum(&s), 3733375634);
    set_free(&s);
}

static void published_cifar100_is_read_right(void **state) {
    (void)state;
    Set s;
    load_published(&s, "cifar100", "cifar-100-binary", HALF_TEST);
    assert_int_equal(s.n, 10000);
    check_counts(&s, NULL);
    assert_int_equal(pixel_sum(&s), 3755249331);
    set_free(&s);
}

static void published_svhn_is_read_right(void **state) {
    (void)state;
    Set s;
    load_published(&s, "svhn", "svhn", HALF_TEST);
    assert_int_equal(s.n, 26032);
    check_counts(&s, (int[]){ 1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595 });
    assert_int_equal(s.y[0], 5);
    assert_int_equal(s.y[3], 0);
    assert_int_equal(s.x[2], 40); // third along the first row
    assert_int_equal(s.x[32], 38); // first of the second row
    assert_int_equal(s.x[100 * 3072 + 2 * 1024 + 5 * 32 + 7], 87);
    assert_int_equal(pixel_sum(&s), 9333681132);
    set_free(&s);
}

static void debians_fashion_mnist_is_read_right(void **state) {
    (void)state;
    if (!dir_exists("/usr/share/datasets/fashion-mnist")) {
        print_message("dataset-fashion-mnist is not installed\n");
        skip();
    }
    Set s;
    load(&s, "fashion-mnist", HALF_TRAIN);
    assert_int_equal(s.n, 60000);
    check_counts(&s, NULL);
    assert_string_equal(s.class_name[s.y[0]], "Ankle boot");
    assert_int_equal(pixel_sum(&s), 3431114169);
    set_free(&s);
    load(&s, "fashion-mnist", HALF_TEST);
    check_counts(&s, NULL);
    assert_int_equal(s.flip, 1);
    assert_int_equal(pixel_sum(&s), 573469082);
    set_free(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(cifar10_is_its_five_batches_in_order),
        TEST(a_batch_of_another_size_is_refused_with_both_sizes),
        TEST(a_label_out_of_range_is_named_with_its_record),
        TEST(a_missing_half_is_an_error_and_the_other_half_is_served),
        TEST(one_missing_file_is_named),
        TEST(the_python_edition_is_told_apart),
        TEST(a_complete_folder_wins_over_an_incomplete_one),
        TEST(cifar100_has_fine_labels_after_the_coarse_ones),
        TEST(names_come_from_the_names_file_which_must_have_them_all),
        TEST(a_cifar_file_has_as_many_classes_as_its_labels_need),
        TEST(a_cifar_file_holds_whole_records),
        TEST(idx_files_are_read_plain_gzipped_and_in_torchvisions_folders),
        TEST(idx_headers_that_lie_are_refused),
        TEST(idx_files_that_are_too_short_or_too_long_are_refused),
        TEST(damaged_gzip_files_are_refused),
        TEST(a_gzip_bomb_is_not_inflated),
        TEST(svhn_rows_become_rows_and_ten_becomes_zero),
        TEST(svhn_labels_may_be_doubles_however_they_are_stored),
        TEST(svhn_labels_out_of_range_are_refused),
        TEST(svhn_arrays_of_another_kind_are_refused),
        TEST(svhn_files_that_are_cut_short_anywhere_are_refused),
        TEST(the_list_says_which_halves_were_found),
        TEST(the_list_names_a_file_that_is_cut_short),
        TEST(the_list_names_cut_files_of_every_format),
        TEST(published_cifar10_is_read_right),
        TEST(published_cifar100_is_read_right),
        TEST(published_svhn_is_read_right),
        TEST(debians_fashion_mnist_is_read_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
