# SPDX-License-Identifier: Apache-2.0
"""Figures of merit of predictions against truth."""
