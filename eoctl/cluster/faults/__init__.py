"""What may befall a played cluster: faults as they are written, and classes that draw them.

From the entry down: classes, language.
"""
