#!/bin/sh
# Make the built-in model, as it was made: one run over a part of the data.
#
#   models/qa-minilm/recipe.sh BASE DATA RUNS [OPTION...]
#
# BASE: a folder with the weights and tokenizer of sentence-transformers/all-MiniLM-L6-v2.
# DATA: the folder with the question files. RUNS: where the run is kept, 2 GB. The options go to the run (`--limit 1300`
# for a trial). The same command goes on with what was ended.
#
# The development part is squad-dev and three training articles, set aside by the hash of their titles among those of
# 250 to 450 questions with a usual share of unanswerable ones. The public test is not read. The model's
# tokenizer.json is that of BASE without truncation and padding; `corelane calibrate` on the run's dev.json made its
# calibration.
set -eu

base=$1 data=$2 runs=$3
shift 3
: "${CORELANE:=corelane}"
# Threads that wait leave the CPU to others.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"

exec $CORELANE tune "$base" "$data/squad-official-train-v2.json.gz=0.4" "$data/squad-train-v2.json.gz" \
    "$data/unanswerable-made.json.gz=0.3" "$data/qed.json.gz=0.3" \
    --dev "$data/squad-dev-v2.0.json.gz" --set-aside Eritrea --set-aside Tajikistan --set-aside Anthropology \
    --negatives 0.03 --epochs 1 --learning-rate 1.5e-4 --batch-tokens 8192 --average 0.998 --judged 4 --patience 99 \
    --saved-as fp16 --seed 1 --run "$runs/first" --name qa-minilm --no-compile "$@"
