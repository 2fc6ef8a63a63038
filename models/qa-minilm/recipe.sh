#!/bin/sh
# Make the built-in model, as it was made: two runs, the second from the weights of the first.
#
#   models/qa-minilm/recipe.sh BASE DATA RUNS [OPTION...]
#
# BASE: a folder with the weights and tokenizer of sentence-transformers/all-MiniLM-L6-v2.
# DATA: the folder with the question files. RUNS: where the runs are kept, 4 GB. The options go to both runs
# (`--limit 1300` for a trial). The same command goes on with what was ended.
#
# The development part is squad-dev and three training articles, set aside by the hash of their titles among those of
# 250 to 450 questions with a usual share of unanswerable ones. The public test is not read. The model's
# tokenizer.json is that of BASE without truncation and padding; `corelane calibrate` on the second run's dev.json made
# its calibration.
set -eu

base=$1 data=$2 runs=$3
shift 3
: "${CORELANE:=corelane}"
# Threads that wait leave the CPU to others.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"

official=$data/squad-official-train-v2.json.gz made=$data/unanswerable-made.json.gz

# One run: its name, the model it begins with, the shares that it reads of SQuAD's training set, of questions made
# unanswerable and of QED, then the options of `corelane tune` that differ.
learn() {
    run=$1 from=$2 official_share=$3 made_share=$4 qed_share=$5
    shift 5
    $CORELANE tune "$from" "$official=$official_share" "$data/squad-train-v2.json.gz" \
        "$made=$made_share" "$data/qed.json.gz=$qed_share" \
        --dev "$data/squad-dev-v2.0.json.gz" --set-aside Eritrea --set-aside Tajikistan --set-aside Anthropology \
        --negatives 0.03 --epochs 1 --batch-tokens 8192 --judged 4 --patience 99 \
        --saved-as fp16 --run "$runs/$run" --name qa-minilm --no-compile "$@"
}

learn first "$base" 0.4 0.3 0.3 --learning-rate 1.5e-4 --average 0.998 --seed 1 "$@"
learn second "$runs/first/model" 0.9 0.15 0.2 --learning-rate 1.2e-4 --warm-up 0.02 --average 0.9985 --seed 2 "$@"
