# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Answer every request to a service, also one that is too large, malformed, or fails."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rcl_interfaces.msg import ParameterType, SetParametersResult
from rcl_interfaces.srv import SetParameters
from rclpy.exceptions import ParameterException

MOST_NAMES = 1000        # in one request: more would keep the node from its work
MOST_REASON = 999        # letters of a reason: a name in it may be as long as a message
LARGEST_TYPE = ParameterType.PARAMETER_STRING_ARRAY


def answered(callback: Callable[..., Any], tell: Callable[[str], object],
             failed: Callable[[Exception], str]) -> Callable[..., Any]:
    """Return a callback of a service that answers whatever `callback` does."""
    if inspect.iscoroutinefunction(callback):
        return callback

    def attempt(request: Any, response: Any) -> Any:
        try:
            _check(request)
            return callback(request, response)
        except (ValueError, ParameterException) as error:
            reason = str(error)
        except Exception as error:           # who asks must not wait forever
            reason = failed(error)
        reason, response = f'{reason:.{MOST_REASON}}', type(response)()
        if not _refuse(response, reason):
            tell(f'{type(request).__name__.removesuffix("_Request")} refused: {reason}')
        return response

    def answer(request: Any, response: Any) -> Any:
        if not isinstance(request, SetParameters.Request) or (
                len(request.parameters) > MOST_NAMES):
            return attempt(request, response)
        # One that is wrong must not keep the others from their results.
        response.results = [
            result for parameter in request.parameters for result in
            attempt(type(request)(parameters=[parameter]), type(response)()).results]
        return response

    return answer


def _check(request: Any) -> None:
    """Check size and types of a request for parameters; ValueError with the reason."""
    parameters = getattr(request, 'parameters', ())
    names = parameters or getattr(request, 'names', None) or getattr(request, 'prefixes', ())
    if len(names) > MOST_NAMES:
        raise ValueError(f'it has {len(names):,} names, at most {MOST_NAMES:,} are answered; ask '
                         'for fewer at once')
    for parameter in parameters:
        if parameter.value.type > LARGEST_TYPE:
            raise ValueError(
                f"parameter '{parameter.name:.99}' has type {parameter.value.type}, must be 0 to "
                f'{LARGEST_TYPE} (rcl_interfaces/msg/ParameterType)')


def _refuse(response: Any, reason: str) -> bool:
    """Fill in a new response that says no; False when it has no room for the reason."""
    refused = SetParametersResult(successful=False, reason=reason)
    if hasattr(response, 'results'):
        response.results = [refused]
    elif isinstance(getattr(response, 'result', None), SetParametersResult):
        response.result = refused
    elif hasattr(response, 'message'):
        response.success, response.message = False, reason
    else:
        return False
    return True
