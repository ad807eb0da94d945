"""Labelled output of failed trainings, and how well the judge reads it."""
