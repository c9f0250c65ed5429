TEST_SUITES += tests/bench/test_run.py
