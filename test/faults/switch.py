#!/usr/bin/env python3
"""A switch for virtual networks that is slow, or loses packets.

    switch.py --delay SECONDS --loss SHARE INTERFACE...
    switch.py --prepare INTERFACE     at the other end of each: see below

It reads every frame that comes at one of the interfaces and sends it out at the
others, after `delay`, unless it is one of those that are lost. Prints "ready",
and at the end (SIGTERM) how many frames there were and how many it has lost.

The kernel hands frames without checksums, and larger than the wire takes, to
virtual interfaces; somebody who reads them would pass on broken ones.
--prepare asks it to make whole frames.
"""

import argparse
import ctypes
import fcntl
import heapq
import itertools
import random
import select
import signal
import socket
import struct
import sys
import time

SIOCETHTOOL = 0x8946
SETTINGS = {"transmit checksums": 0x17, "segmentation of TCP": 0x1F, "segmentation": 0x24}
ALL_PROTOCOLS = 3
OUTGOING = 4  # PACKET_OUTGOING: what we have sent ourselves


def prepare(interface):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for command in SETTINGS.values():
            value = ctypes.create_string_buffer(struct.pack("II", command, 0))
            request = struct.pack("16sP8x", interface.encode(), ctypes.addressof(value))
            fcntl.ioctl(any_socket, SIOCETHTOOL, request)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--loss", type=float, default=0.0)
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("interfaces", nargs="+")
    options = parser.parse_args()
    if options.prepare:
        for interface in options.interfaces:
            prepare(interface)
        return
    ends = []
    signal.signal(signal.SIGTERM, lambda *_: ends.append(True))
    sockets = []
    for interface in options.interfaces:
        packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
        packets.bind((interface, 0))
        packets.setblocking(False)
        sockets.append(packets)
    chance = random.Random(1)
    waiting = []  # (when, number, where, frame)
    numbers = itertools.count()
    frames = lost = 0
    print("ready", flush=True)
    while not ends:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 0.5
        for ready in select.select(sockets, [], [], timeout)[0]:
            while True:
                try:
                    frame, address = ready.recvfrom(1 << 16)
                except BlockingIOError:
                    break
                if address[2] == OUTGOING:
                    continue
                frames += 1
                if chance.random() < options.loss:
                    lost += 1
                    continue
                due = time.monotonic() + options.delay
                for other in sockets:
                    if other is not ready:
                        heapq.heappush(waiting, (due, next(numbers), other, frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, other, frame = heapq.heappop(waiting)
            other.send(frame)
    print(f"{frames} frames, {lost} of them lost", flush=True)


if __name__ == "__main__":
    sys.exit(main())
