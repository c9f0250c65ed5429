#!/usr/bin/env python3
"""Packs the entries of an uncompressed fatbin as LZ4 blocks: pack_lz4.py IN OUT. A greedy packer, enough to make
literals, matches, overlaps and long lengths."""
import struct, sys


def lengths(n):
    return bytes([255] * ((n - 15) // 255) + [(n - 15) % 255]) if n >= 15 else b""


def pack(data):
    out, seen, start, at = bytearray(), {}, 0, 0
    while at + 12 < len(data):  # the last bytes are literals, as the format wants
        key = data[at:at + 4]
        back = at - seen.get(key, -(1 << 20))
        seen[key] = at
        if back > 65535:
            at += 1
            continue
        n = 4
        while at + n < len(data) - 5 and data[at + n] == data[at + n - back]:
            n += 1
        literals = data[start:at]
        out.append(min(len(literals), 15) << 4 | min(n - 4, 15))
        out += lengths(len(literals)) + literals + struct.pack("<H", back) + lengths(n - 4)
        at += n
        start = at
    literals = data[start:]
    return bytes(out) + bytes([min(len(literals), 15) << 4]) + lengths(len(literals)) + literals


image = open(sys.argv[1], "rb").read()
header = struct.unpack_from("<H", image, 6)[0]
out, at = bytearray(), header
while at + 64 <= len(image):
    entry, size = struct.unpack_from("<IQ", image, at + 4)
    head, body = bytearray(image[at:at + entry]), image[at + entry:at + entry + size]
    packed = pack(body)
    struct.pack_into("<QI", head, 8, len(packed) + (-len(packed) % 8), len(packed))
    struct.pack_into("<Q", head, 40, struct.unpack_from("<Q", head, 40)[0] | 0x2000)
    struct.pack_into("<Q", head, 56, len(body))
    out += head + packed + bytes(-len(packed) % 8)
    at += entry + size
open(sys.argv[2], "wb").write(image[:8] + struct.pack("<Q", len(out)) + image[16:header] + out)
