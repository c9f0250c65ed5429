#!/usr/bin/env python3
"""Makes digits.bin again from the scikit-learn package: 1797 records of 64 pixels (0 to 16) and a label, a byte each.

Downloads the wheel named below into a temporary folder (pip, no installation) and reads
sklearn/datasets/data/digits.csv.gz from it. Usage: make_data.py [OUTPUT]
"""
import csv, gzip, io, pathlib, subprocess, sys, tempfile, zipfile

PACKAGE = "scikit-learn==1.7.2"
MEMBER = "sklearn/datasets/data/digits.csv.gz"


def main():
    output = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).with_name("digits.bin")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", folder, PACKAGE], check=True)
        wheel = next(pathlib.Path(folder).glob("*.whl"))
        text = gzip.decompress(zipfile.ZipFile(wheel).read(MEMBER)).decode()
    rows = [[int(float(x)) for x in row] for row in csv.reader(io.StringIO(text))]
    assert len(rows) == 1797 and all(len(r) == 65 and max(r[:64]) <= 16 and 0 <= r[64] <= 9 for r in rows)
    output.write_bytes(b"".join(bytes(r) for r in rows))
    print(f"{output}: {output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
