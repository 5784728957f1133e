# SPDX-License-Identifier: Apache-2.0
"""Synthetic scenes with exact ground truth."""
