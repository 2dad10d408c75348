"""Train a model of native size on a table from ``mlgo-corpus ir2native``, and predict the table's own functions.

pip install 'mlgo-corpus[learn]'
mlgo-corpus ir2native CORPUS --output sizes
python examples/size_model.py sizes
"""

import sys

from mlgo_corpus import SizeModel, train_size_model

report = train_size_model([sys.argv[1]], "size-model", force=True)
print(*report.measured, sep="\n")
print(SizeModel.load(report.output).predict(sys.argv[1]))
