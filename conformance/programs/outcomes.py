"""A pytest plugin that writes each test's outcome to the file that OUTCOMES names.

One line a test: the outcome, a tab, the test's name. Lines are flushed at once, so
that the outcomes before a crash are kept. With OUTCOMES_VENDOR the platform bears
that vendor's name, so that no test goes by the native one.
"""

import os


def pytest_configure(config):
    vendor = os.environ.get("OUTCOMES_VENDOR")
    if vendor:
        import pyopencl

        pyopencl.Platform.vendor = property(lambda platform: vendor)


def pytest_runtest_logreport(report):
    # The outcome is that of the test's own phase, unless its setup failed or skipped the test.
    if report.when == "call" or (report.when == "setup" and not report.passed):
        outcome = "xfailed" if hasattr(report, "wasxfail") else report.outcome
        with open(os.environ["OUTCOMES"], "a", encoding="utf-8") as file:
            file.write(f"{outcome}\t{report.nodeid}\n")
