# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run a node as a process: signals, missing packages, environment, orderly end."""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import math
import os
import re
import select
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TYPE_CHECKING

from vjepa_ros.parameter import SCHEMAS, schema_of
from vjepa_ros.ros.parameter_file import is_for, readable, unknown

if TYPE_CHECKING:
    from vjepa_ros.ros.common.node import ResilientNode

# Frames of several hundred kilobytes come and go at camera rate: by default glibc maps and unmaps
# fresh pages for each. Of its arenas, by default up to eight a core, `malloc_trim` gives back what
# is free at the end of the first alone. Idle threads of NumPy's matrix library would spin on the
# cores that the encoder needs; threads of PyTorch that wait for each other would do so for
# milliseconds, in which nothing else gets their core.
TUNING = {'MALLOC_MMAP_THRESHOLD_': str(32 << 20), 'MALLOC_TRIM_THRESHOLD_': str(128 << 20),
          'MALLOC_ARENA_MAX': '1', 'OPENBLAS_NUM_THREADS': '1', 'GOMP_SPINCOUNT': '1000'}
# Value of FASTDDS_BUILTIN_TRANSPORTS: with the default the datagrams of Fast DDS are too small for
# its fragments of a raw image to arrive.
LARGE_IMAGES = 'DEFAULT?max_msg_size=64KB&sockets_size=4MB'
# The same without shared memory. There, each reader of Fast DDS has a queue with a lock. A process
# that is stopped or killed while it holds one keeps all others from writing to that reader for the
# second that they wait for the lock.
NETWORK_ONLY = 'UDPv4?max_msg_size=64KB&sockets_size=4MB'
FOLDER = Path('/dev/shm')
QUEUE = re.compile(rb'/dev/shm/(fast(?:dds|rtps)_port(\d+))\b')
OF_ALL = range(7000, 7400)       # numbers of queues that are not of one domain
FIRST, OF_DOMAIN = 7400, 250     # those of a domain, by the rule of RTPS for its ports
LOOKED_AT_S = 0.02               # for so long Fast DDS holds the lock of a queue to look at it

# The log never waits for who reads: a pipe may be full, a terminal held by Ctrl-S. ROS writes it
# while no other thread of Python can run, so that all of a node would wait.
STREAM = 'stdout' if os.environ.get('RCUTILS_LOGGING_USE_STDOUT') == '1' else 'stderr'
NUMBER = {'stdout': 1, 'stderr': 2}[STREAM]


def unblock_log() -> None:
    """Let writing to the log fail at once rather than wait; see `lost_output`."""
    try:
        regular = stat.S_ISREG(os.fstat(NUMBER).st_mode)
    except OSError:                          # closed
        return
    if regular or sys.platform != 'linux':
        return
    try:         # anew, because who shares a pipe or terminal is not to be changed
        anew = os.open(f'/proc/self/fd/{NUMBER}', os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:                          # a socket, or of another user, as after sudo -u
        os.set_blocking(NUMBER, False)
        if os.isatty(NUMBER):
            atexit.register(os.set_blocking, NUMBER, True)
    else:
        os.dup2(anew, NUMBER)
        os.close(anew)


def lost_output() -> bool:
    """Return whether the C library has failed to write the log, once that is possible again."""
    if sys.platform != 'linux' or not _C.ferror(_FILE):
        return False
    reader = select.poll()
    reader.register(NUMBER, select.POLLOUT)
    if [event for _, event in reader.poll(0)] != [select.POLLOUT]:     # full, or nobody is there
        return False
    _C.clearerr(_FILE)
    return True


if sys.platform == 'linux':
    _C = ctypes.CDLL(None)
    _FILE = ctypes.c_void_p.in_dll(_C, STREAM)


# A second process may stand by: most of the time in which a killed node is back goes into the
# import of PyTorch. Until its turn comes it takes part in nothing.
VARIABLE = 'VJEPA_ROS_TURN'      # of the environment: path of a file, the same for both
LOOK_S = 0.02                    # between two looks at the lock
LET_START_S = 10.0               # in which who stands by leaves the cores to who starts


def wait_for_turn(file: int | None, limit_s: float = math.inf) -> bool:
    """Wait so long to be the node, for the lock of an open file; whether it is our turn.

    None: nobody stands by. A signal whose handler raises ends the wait.
    """
    end_s = time.monotonic() + limit_s
    while file is not None:
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        if time.monotonic() >= end_s:
            return False
        time.sleep(LOOK_S)
    return True


WAKE_S = 0.2             # a signal is seen at most this late
LOG_EVERY_S = 2.0        # at most one warning of lost output in this time
RARELY = 1000            # collections of the young that one of all waits for, by default 10
# Those by which the kernel tells of a fault in the code, to which it would return and return.
FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
# Those that end nothing by default, or that Python ignores.
HARMLESS = {getattr(signal, f'SIG{name}', 0) for name in (
    'CHLD', 'CONT', 'URG', 'WINCH', 'INFO', 'PIPE', 'XFSZ')}
SUSPENDING = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
ENDING = (signal.valid_signals() - FAULTS - HARMLESS - SUSPENDING
          - {signal.SIGKILL, signal.SIGSTOP})
SOURCE_LINE = re.compile(r',\s+at [^,]+:\d+')     # of rcl, in its errors


class Signals:
    """Signals that would end or stop the process as flags, so that a node can do it in order."""

    def __init__(self) -> None:
        self.received = self.suspends = False    # whether one of `ENDING`, `SUSPENDING` has come
        self.serves = False      # whether somebody looks at `suspends`; else it stops at once
        # Asked when the first one comes: whether it may break into what runs now.
        self.may_interrupt: Callable[[], bool] = lambda: True
        for number in ENDING | SUSPENDING:
            # Who started it may have meant one to be ignored, as nohup does.
            if number in (signal.SIGINT, signal.SIGTERM) or (
                    signal.getsignal(number) != signal.SIG_IGN):
                signal.signal(number, self._on_signal if number in ENDING else self._on_suspend)

    def _on_signal(self, *_: object) -> None:
        first, self.received = not self.received, True
        if first and self.may_interrupt():
            raise KeyboardInterrupt

    def _on_suspend(self, *_: object) -> None:
        self.suspends = self.serves
        if not self.serves:
            os.kill(os.getpid(), signal.SIGSTOP)


@contextmanager
def avoiding_abandoned_queues(environ: Mapping[str, str], processes: Path = Path('/proc')
                              ) -> Iterator[list[str]]:
    """Keep what takes part in DDS here from queues that others still write to for killed readers.

    A reader of Fast DDS takes the first number that is free for its queue: after a SIGKILL that of
    the killed reader. Writers notice after one to four seconds, sometimes never
    (https://github.com/eProsima/Fast-DDS/issues/5469), that it is another queue; until then the
    new reader gets nothing. While the locks of such queues are held, Fast DDS takes other numbers.
    """
    domain, written = environ.get('ROS_DOMAIN_ID') or '0', set[str]()
    if domain.isdecimal() and not environ.get('FASTDDS_BUILTIN_TRANSPORTS', '').startswith('UDP'):
        begin = FIRST + OF_DOMAIN * int(domain)
        for maps in processes.glob('[0-9]*/maps'):
            with suppress(OSError):          # it has ended, or is of another user
                written.update(
                    name.decode() for name, number in QUEUE.findall(maps.read_bytes())
                    if int(number) in OF_ALL or begin <= int(number) < begin + OF_DOMAIN)
    with ExitStack() as kept:
        first = {name for name in written if _keep(name, kept)}
        time.sleep(LOOKED_AT_S if written else 0.0)
        yield sorted(first | {name for name in written - first if _keep(name, kept)})


def _keep(name: str, kept: ExitStack) -> bool:
    """Hold the lock of a queue; whether nobody else holds it."""
    with suppress(OSError), ExitStack() as stack:
        lock = stack.enter_context(open(os.open(
            FOLDER / f'{name}_el', os.O_RDWR | os.O_CREAT, 0o666), 'rb'))
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        kept.push(stack.pop_all())
        return True
    return False


@contextmanager
def starting(name: str) -> Iterator[None]:
    """Make a node in this: Ctrl-C exits 0, a missing package is named with its remedy."""
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(0)
    except ModuleNotFoundError as error:
        package = (error.name or '').partition('.')[0]
        if package in ('', 'vjepa_ros'):
            raise            # a fault of this package: no installation would mend it
        sys.exit(f"{name} needs '{package}', which this Python does not have: source your "
                 'ROS 2 (or install its wheels), and install the requirements in the README')


def settle() -> None:
    """Take what there is out of view of the collector, so that a collection holds up no frame."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def run(name: str, make: str | Callable[[], Any], args: list[str] | None,
        commands: bool = False) -> int:
    """Run a node, which a failing callback does not end, until it is done or a signal comes."""
    signals = Signals()
    unblock_log()
    for variable in ('OPENBLAS_NUM_THREADS', 'GOMP_SPINCOUNT'):      # read at the import
        os.environ.setdefault(variable, TUNING[variable])
    if commands:
        transports = os.environ.get('FASTDDS_BUILTIN_TRANSPORTS') or 'DEFAULT'
        if transports.startswith('DEFAULT'):     # else the user chose others
            os.environ['FASTDDS_BUILTIN_TRANSPORTS'] = NETWORK_ONLY
    with starting(name):
        path = os.environ.get(VARIABLE)
        # Never closed: the lock is released by the end of the process, however it ends.
        turn = os.open(path, os.O_RDWR | os.O_CREAT, 0o600) if path else None
        if stands_by := not wait_for_turn(turn, 0.0):
            sys.stderr.write(f'{name} stands by\n')
            wait_for_turn(turn, LET_START_S)
        # What is imported stays: to look through it for what has ended only takes time.
        gc.disable()
        import rclpy
        import rclpy.logging

        make_node: Callable[[], Any] = resolve_name(make) if isinstance(make, str) else make
        gc.freeze()
        gc.enable()
        if commands:
            # To look through what a huge message is made of holds up all threads for long.
            gc.set_threshold(*gc.get_threshold()[:2], RARELY)
        wait_for_turn(turn)
        if stands_by:
            sys.stderr.write(f'{name} takes over\n')
        try:
            with avoiding_abandoned_queues(os.environ):
                node = _made(name, sys.argv if args is None else args, make_node)
        except ValueError as error:
            from vjepa_ros.ros.common.node import tell_error

            tell_error(rclpy.logging.get_logger(name), str(error), error)
            rclpy.try_shutdown()
            return 1
        # Callbacks are short and must not be torn apart. (No lambda: it would keep the node.)
        signals.may_interrupt = partial(getattr, node, 'may_interrupt')
    ended = serve(node, signals)
    code = 0 if signals.received else node.exit_code
    if not ended:
        os._exit(code)   # a thread hangs in a model or a driver; the interpreter must not wait
    signals.may_interrupt = lambda: False
    # The middleware must leave its domain before its libraries end: that of Jazzy crashes
    # otherwise. What is out of view of the collector would hold it until then.
    del node
    settle()
    return code


def serve(node: ResilientNode, signals: Signals) -> bool:
    """Serve a node, then destroy it; False when one of its threads is left over."""
    import rclpy
    from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor

    executor = SingleThreadedExecutor(context=node.context)
    executor.add_node(node)
    signals.serves = True
    try:
        while not signals.received and not node.done and node.context.ok():
            try:
                executor.spin_once(timeout_sec=WAKE_S)
                if signals.suspends:     # stop this process until SIGCONT, once that is safe
                    signals.suspends = False
                    if node.suspend():
                        os.kill(os.getpid(), signal.SIGSTOP)
            except ExternalShutdownException:
                break
            except Exception as error:
                # One callback must not blind the robot: rclpy would end the process here.
                node.note_failed_callback(error)
            if lost_output():
                node.get_logger().warning(
                    'nobody read the output of this node for a while: lines of its log are '
                    'missing before this one, but were published on /rosout',
                    throttle_duration_sec=LOG_EVERY_S)
    except KeyboardInterrupt:
        node.get_logger().info('interrupted while configuring')
    executor.shutdown(timeout_sec=0.1)
    node.destroy_node()
    rclpy.try_shutdown(context=node.context)
    return node.ended


def _made(name: str, args: Sequence[str], make: Callable[[], Any]) -> Any:
    """Make a node; ValueError: what is wrong with its command line."""
    import rclpy
    import rclpy.exceptions
    import rclpy.signals

    rows = schema_of(name).row if name in SCHEMAS else unknown
    with readable(args, rows) as (words, files):
        try:
            rclpy.init(args=words, signal_handler_options=rclpy.signals.SignalHandlerOptions.NO)
        except RuntimeError as error:
            raise ValueError('ROS refuses the command line: '
                             f'{SOURCE_LINE.sub("", str(error)).strip()}') from error
    try:
        node = make()
    except rclpy.exceptions.ParameterException as error:     # one of ROS, such as use_sim_time
        raise ValueError(f'{error}; give it a value of that type') from error
    whole = node.get_fully_qualified_name()
    for file, blocks in files.items():
        if blocks and not any(is_for(each, whole) for each in blocks):
            node.get_logger().warning(
                f'parameter file {file!r} has nothing for {whole}, only for {", ".join(blocks)}; '
                'name the node so in the file, or /**')
    return node


def camera_source(args: list[str] | None = None) -> int:
    """Run `camera_source` as a process, whose module may lack a package; its exit code."""
    with starting('camera_source'):
        main = resolve_name('vjepa_ros.ros.sim.camera_source:main')
    return main(args)


def simulated_robot(args: list[str] | None = None) -> int:
    """Run `simulated_robot` as a process, whose module may lack a package; its exit code."""
    with starting('simulated_robot'):
        main = resolve_name('vjepa_ros.ros.sim.simulated_robot:main')
    return main(args)
