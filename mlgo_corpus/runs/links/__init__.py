"""Link the products of a corpus's build again, with other objects."""
