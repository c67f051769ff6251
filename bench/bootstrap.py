"""Lambda's part: imports a handler, hands it events from standard input, writes its answers to a pipe.

Runs in the process that is measured, so it imports next to nothing. Each answer is a line; a line of figures follows.
"""

import json
import os
import sys
from importlib import import_module
from time import perf_counter_ns, process_time_ns

QUICK_ACK = "--quick-ack"


class Context:
    """What a handler may ask of Lambda's context."""

    function_name = "bench"
    function_version = "$LATEST"
    memory_limit_in_mb = 1024
    aws_request_id = "5e0c9a3c-0000-4000-8000-000000000000"
    invoked_function_arn = "arn:aws:lambda:us-east-1:123456789012:function:bench"
    log_group_name = "/aws/lambda/bench"
    log_stream_name = "bench"

    def get_remaining_time_in_millis(self) -> int:
        return 30_000


def peak_kb() -> int:
    """The most memory so far. Not `ru_maxrss`: it begins with what the parent had."""
    with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123 - pathlib is not free
        return next((int(line.split()[1]) for line in status if line.startswith("VmHWM:")), 0)


def acknowledge_at_once() -> None:
    """Turn delayed TCP acknowledgements off for every library alike.

    Qdrant sends an answer in two parts and holds back the second until the first is acknowledged. On loopback each
    part is one segment, which Linux acknowledges 40 ms late; over a network, where a part is many, mostly at once.
    """
    import socket

    def reading_with(read):  # type: ignore[no-untyped-def]
        def reading(self, *given):  # type: ignore[no-untyped-def]
            try:  # noqa: SIM105 - contextlib costs more than the call
                self.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            except OSError:  # not TCP
                pass
            return read(self, *given)

        return reading

    for name in ("recv", "recv_into"):
        setattr(socket.socket, name, reading_with(getattr(socket.socket, name)))


def main(handler_name: str, answers: int) -> None:
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    module, _, name = handler_name.rpartition(".")
    handler = getattr(import_module(module), name)
    ready = perf_counter_ns()
    with os.fdopen(answers, "wb") as pipe:
        for line in sys.stdin.buffer:
            event, context = json.loads(line), Context()
            cpu, begun = process_time_ns(), perf_counter_ns()
            answer = handler(event, context)
            ended, cpu_ended = perf_counter_ns(), process_time_ns()
            pipe.write(json.dumps(answer).encode() + b"\n")
            pipe.flush()
            process = process_time_ns()
            figures = {"wall_ns": ended - begun, "cpu_ns": cpu_ended - cpu, "process_cpu_ns": process}
            figures |= {"ready_ns": ready, "peak_kb": peak_kb()}
            pipe.write(json.dumps(figures).encode() + b"\n")
            pipe.flush()


if __name__ == "__main__":
    if QUICK_ACK in sys.argv:
        acknowledge_at_once()
    main(sys.argv[1], int(sys.argv[2]))
