// test_report.c - the paper's figures, pictures of a run, its report.
#include "run/paper.h"
#include "testing.h"

// ---- the paper's figures ------------------------------------------------------------------

static void figures_are_found_by_system_set_and_measure(void **state) {
    (void)state;
    assert_close(paper_figure("jempp-m10", "cifar10", "acc"), 93.5, 0);
    assert_close(paper_figure("jempp-m10", "cifar100", "acc"), 74.5, 0);
    assert_close(paper_figure("jem", "cifar10", "ece"), 4.2, 0);
    assert_close(paper_figure("jempp-m20", "cifar10", "logpx:celeba"), .89, 0);
    assert_close(paper_figure("softmax", "cifar10", "maxp:interp"), .77, 0);
    assert_true(isnan(paper_figure("softmax", "cifar10", "logpx:interp")));
    assert_true(isnan(paper_figure("jempp-m10", "mnist", "acc")));
    assert_true(isnan(paper_figure("demo", "cifar10", "acc")));
}

static void a_file_stands_for_the_set_that_it_is_named_after(void **state) {
    (void)state;
    assert_close(paper_figure("jempp-m5", "cifar10", "logpx:cifar-file:/d/celeba.bin"), .74, 0);
    assert_close(paper_figure("jempp-m5", "cifar10", "maxp:cifar-file:celeba.bin"), .78, 0);
    assert_true(isnan(paper_figure("jempp-m5", "cifar10", "maxp:cifar-file:celebabel.bin")));
    assert_true(isnan(paper_figure("jempp-m5", "cifar10", "gradnorm:cifar-file:celeba.bin")));
    assert_true(isnan(paper_figure("jempp-m5", "cifar10", "maxp:cifar-file:celeba.bin/other")));
}

static void another_preset_is_compared_with_the_papers_own_choice(void **state) {
    (void)state;
    assert_string_equal(paper_system("jem"), "jem");
    assert_string_equal(paper_system("demo"), "jempp-m10");
    assert_string_equal(paper_system(""), "jempp-m10");
    assert_string_equal(paper_label("jempp-m10"), "JEM++ M=10");
    assert_null(paper_label("demo"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_found_by_system_set_and_measure),
        cmocka_unit_test(a_file_stands_for_the_set_that_it_is_named_after),
        cmocka_unit_test(another_preset_is_compared_with_the_papers_own_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
