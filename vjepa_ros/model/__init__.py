# SPDX-License-Identifier: Apache-2.0
"""Networks and weights of the V-JEPA 2 family."""
