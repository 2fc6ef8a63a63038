"""Sample texts, written for Corelane, on which compiled models are compared with eager ones."""

LIGHTHOUSE = (
    "The lighthouse on Gull Rock was built in 1874 by the engineer Mary Ashdown. The tower is 31 metres tall and "
    "stands on a reef two miles west of the harbour. Its lamp burned whale oil until 1902, when the keepers changed "
    "to paraffin. The last keeper, Owen Pryce, left in 1988, and since then the light has been run from the "
    "mainland."
)

BAKERY = (
    "Every morning at four o'clock Leila Haddad lights the stone oven of her bakery in Lyon. She learned the trade "
    "from her grandfather, who came from Aleppo in 1961. The shop sells eleven kinds of bread, but most people "
    "queue for the rye loaf with walnuts, which costs six euros and is gone before nine."
)

RIVER = (
    "The Tarn rises on the slopes of Mont Lozère and runs west for 380 kilometres before it joins the Garonne. In "
    "its upper course it has cut a gorge through limestone that is in places more than 500 metres deep. Otters, "
    "which had vanished from the valley by the 1970s, returned after the water became cleaner."
)

PROCESSOR = (
    "The board carries two processors. The larger one decodes video and is cooled by a small fan; the other, which "
    "draws less than one watt, watches the sensors and wakes its neighbour when something moves. Firmware is "
    "updated over a serial cable, and a red lamp blinks twice if the update fails."
)

ORCHESTRA = (
    "When the Valletta Youth Orchestra was founded in 2009 it had fourteen members and no conductor. Today it has "
    "ninety players between the ages of twelve and twenty-four. Its first recording, made in an empty granary "
    "because the concert hall was being repaired, won the Island Prize. The orchestra rehearses on Thursdays."
)

GLACIER = (
    "Measurements began on the Hallen glacier in 1931. Since then it has lost forty percent of its area, most of it "
    "after 1990. Dr. Ingrid Solberg, who leads the survey, says that the lower tongue will be gone by 2050. "
    "Meltwater from the glacier feeds the reservoir that supplies the town of Brekke with electricity."
)

TOWER = "The tower was built in 1889. The tower is 330 metres tall."

PROGRAM = "Ada Lovelace wrote the first program. Byron was a poet."

EVERYTHING = " ".join((ORCHESTRA, LIGHTHOUSE, PROCESSOR, BAKERY, RIVER, GLACIER))

#: The sample texts, short ones first: a word, a sentence, passages, and one that no bucket holds.
SAMPLES = (
    "Splendid!",
    "The parcel never came, and nobody called back.",
    "Der Zug nach Lyon fährt um 9:40 Uhr von Gleis 7.",
    LIGHTHOUSE[:90],
    BAKERY[:160],
    LIGHTHOUSE,
    BAKERY,
    RIVER,
    PROCESSOR,
    ORCHESTRA,
    GLACIER,
    EVERYTHING,
)
