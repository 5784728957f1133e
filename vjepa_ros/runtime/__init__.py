# SPDX-License-Identifier: Apache-2.0
"""How a model runs: device, precision, sessions."""
