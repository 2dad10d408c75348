"""TFRecord, SequenceExample and TFLite, and the headers of Parquet's pages."""
