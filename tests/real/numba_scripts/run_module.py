"""Runs one of numba-cuda's test modules in this process: run_module.py MODULE RESULTS. Every test's end is a line of
JSON in RESULTS, written at once: a process that dies has told what came before."""
import json, sys, unittest


class Result(unittest.TextTestResult):
    out = None

    def tell(self, test, outcome, reason=""):
        self.out.write(json.dumps([test.id(), outcome, reason]) + "\n")
        self.out.flush()

    def startTest(self, test):
        super().startTest(test)
        self.failed_part = False

    def addSuccess(self, test):
        super().addSuccess(test)
        if not self.failed_part:
            self.tell(test, "passed")

    def addExpectedFailure(self, test, error):
        super().addExpectedFailure(test, error)
        self.tell(test, "passed")

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.tell(test, "failed", "unexpected success")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.tell(test, "skipped", reason)

    def failed(self, test, error):
        # pytest's skip, thrown under unittest
        outcome = "skipped" if error[0].__name__ == "Skipped" else "failed"
        self.tell(test, outcome, self._exc_info_to_string(error, test).strip().splitlines()[-1])

    def addError(self, test, error):
        super().addError(test, error)
        self.failed(test, error)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.failed(test, error)

    def addSubTest(self, test, part, error):
        super().addSubTest(test, part, error)
        if error and not self.failed_part:
            self.failed_part = True
            self.failed(test, error)


if __name__ == "__main__":  # tests start processes that import this file again
    with open(sys.argv[2], "w") as Result.out:
        tests = unittest.defaultTestLoader.loadTestsFromName(f"numba.cuda.tests.{sys.argv[1]}")
        unittest.TextTestRunner(verbosity=2, resultclass=Result).run(tests)
        Result.out.write(json.dumps(["", "end", ""]) + "\n")
