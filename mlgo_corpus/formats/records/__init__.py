"""TFRecord, SequenceExample and TFLite."""
