"""TFRecord and SequenceExample."""
