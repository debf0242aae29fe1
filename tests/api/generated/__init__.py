"""Calls generated from the OpenAPI document, and a judge of what they answer and change."""
