"""Words that say how a statement is meant, in English, German, French, Spanish, Italian, Portuguese and Dutch.

They are lists, so they have gaps; what `omissions` decides by the place of a quote in its sentence needs none of them.
Two kinds: what makes a statement doubtful, and (from `FACTIVES` on) what a quote may leave out unread, where a gap only
refuses a fair quote.
"""

from __future__ import annotations

from upcall.lazy_pattern import LazyPattern


def _words(text: str) -> frozenset[str]:
    return frozenset(text.casefold().split())


DENIALS = _words(
    """
    no not none nor neither never nobody nothing nowhere without hardly barely scarcely rarely seldom few little only
    dont doesnt didnt isnt arent wasnt werent hasnt havent hadnt wouldnt shouldnt couldnt mustnt cant wont neednt
    cannot
    untrue unlikely unable unfounded unproven false falsely wrong wrongly incorrect incorrectly myth myths fail fails
    failed refuse refuses refused reject rejects rejected deny denies denied doubt doubts doubted doubtful dispute
    disputes disputed refute refutes refuted against prevent prevents prevented forbid forbids forbidden prohibit
    prohibits prohibited withdrawn retracted overturned avoid avoids avoided cease ceases ceased stop stopped lack
    lacks
    absence instead rather misconception misconceptions fallacy disproved disproven debunked discredited hoax mistaken
    mistakenly fabricated erroneous erroneously outdated excepted except nearly almost contrary
    nicht kein keine keinen keiner keines keinem nie niemals niemand nichts ohne weder nur kaum selten entgegen falsch
    bestreitet bestritten irrtum irrtümlich fälschlich widerlegt widerlegte mythos märchen fast beinahe
    ne n pas jamais aucun aucune aucuns aucunes rien sans ni seulement faux fausse démenti démentie réfuté réfutée
    erreur mythe presque
    nunca sin ningún ninguna ninguno nadie nada ni tampoco solo sólo falso falsa mentira mito desmentido desmentida
    casi
    salvo excepto
    non nessun nessuno nessuna mai senza né niente nulla soltanto falsa smentito smentita quasi tranne
    não nem nunca sem nenhum nenhuma ninguém apenas somente desmentido desmentida quase exceto
    niet geen nooit niemand niets zonder slechts alleen onjuist fabel mythe bijna behalve nauwelijks
    """
)
_HAN_DENIAL = LazyPattern("[不没無无]|非(?! 常)|未(?! 来)")

MODALS = _words(
    """
    can could may might shall should must will would ought wouldve couldve mightve possibly perhaps maybe probably
    presumably apparently seemingly allegedly reportedly supposedly likely potentially arguably purportedly ostensibly
    chance possibility risk mejor hopefully theoretically hypothetically seem seems seemed appear appears appeared
    kann kannst können könnt konnte konnten könnte könnten soll sollen sollte sollten wollen wollte wollten darf
    dürfen
    durfte durften dürfte dürften muss müssen musste mussten müsste müssten mag mögen mochte möchte möchten würde
    würden
    vermutlich möglicherweise womöglich vielleicht wahrscheinlich wohl angeblich mutmaßlich anscheinend scheinbar
    scheint
    scheinen hätte hätten wäre wären
    peut peuvent pouvait pouvaient pourrait pourraient doit doivent devait devaient devrait devraient faut faudrait
    veut
    veulent voudrait semble semblent paraît paraissent peutêtre probablement vraisemblablement serait seraient aurait
    auraient
    puede pueden podía podían podría podrían podrá podrán debe deben debía debían debería deberían quiere quieren
    parece
    parecen suele suelen quizá quizás acaso probablemente posiblemente presuntamente supuestamente habría habrían
    sería
    serían
    può possono poteva potevano potrebbe potrebbero deve devono doveva dovevano dovrebbe dovrebbero vuole vogliono
    sembra
    sembrano pare paiono forse probabilmente presumibilmente magari sarebbe sarebbero avrebbe avrebbero
    pode podem podia podiam poderia poderiam poderá deve devem devia deviam deveria deveriam quer querem parecem
    talvez
    provavelmente possivelmente supostamente seriam teria teriam
    kan kunnen kon konden zou zouden moet moeten moest moesten mogen mocht mochten wil willen wilde wilden zal zullen
    schijnt lijkt lijken misschien wellicht waarschijnlijk mogelijk vermoedelijk
    """
)
"""Verbs that make another verb possible, necessary or wished, and adverbs that do so."""

BELIEFS = _words(
    """
    believe believes believed believing think thinks thought claim claims claimed claiming allege alleges alleged
    allegation allegations rumour rumours rumoured rumor rumors rumored suppose supposes supposed assume assumes
    assumed
    assumption predict predicts predicted prediction hypothesise hypothesised hypothesize hypothesized hypothesis
    speculate speculates speculated pretend pretends pretended contend contends contended argue argues argued assert
    asserts asserted suggest suggests suggested insist insists insisted maintain maintained maintains boast boasts
    boasted foretold testified hope hopes hoped fear fears feared imagine
    imagines imagined dream dreams dreamed dreamt joke jokes joked lie lied lies guess guesses guessed suspect
    suspects
    suspected expect expects expected wish wishes wished wonder wonders wondered warn warns warned threaten threatens
    threatened promise promises promised notion idea theorists conspiracy superstition feel feels felt say hint hinted
    nehmen annehmen admettons glaubt glaubte glauben glaubten behauptet behaupten behauptete behaupteten behauptung
    behauptungen vermuten hoffen fürchten denken erwarten gerücht gerüchte meint
    meinte meinen vermutet vermutete hofft hoffte fürchtet fürchtete träumt träumte denkt dachte erwartet erwartete
    croit croient croyait croyaient prétend prétendent prétendait prétendu affirme affirment affirmait pense pensent
    pensait espère espèrent espérait craignent rumeur rumeurs idée suppose supposait craint craignait
    cree creen creía creían pretende afirma afirman afirmaba piensa piensan pensaba espera esperan esperaba rumor
    rumores teme temen dice dicen idea
    crede credono credeva credevano afferma affermano pensa pensano pensava spera sperava voce voci dicono teme
    acredita acreditam acreditava acreditavam afirmam pensam pensava esperava boato boatos teme dizem
    gelooft geloofde geloven beweert beweerde denkt dacht hoopt hoopte gerucht geruchten vreest meent bewering
    """
)
"""Words for what somebody holds to be so, which need not be so."""

FRAMES = _words(
    """
    novel fiction fictional film films movie movies play story tale tales legend legends fable fables hoax satire
    parody
    sketch dream dreams fantasy scenario scenarios hypothesis hypothetical hypothetically theory simulation imagine
    imagined suppose supposing assume assuming pretend picture game games comic cartoon episode script drama opera
    poem
    myth myths experiment joke jokes superstition
    roman romans märchen sage sagen legende legenden mythos traum satire scherz szenario angenommen stellt stellen
    witz theaterstück gedankenexperiment hypothese krimi schauspiel
    conte contes légende légendes mythe rêve scénario supposons supposez imaginez imaginons hypothèse blague pièce
    fiction
    novela película cuento cuentos leyenda leyendas mito sueño sátira broma escenario imagine imagina imaginen
    imaginemos
    supongamos suponga hipótesis ficción
    romanzo favola fiaba leggenda sogno satira scherzo immagina immaginate immaginiamo supponiamo ipotesi finzione
    romance filme conto lenda sonho sátira piada cenário imaginem imaginemos suponha suponhamos hipótese ficção
    sprookje legende droom grap stel verbeeld verhaal toneelstuk
    """
)
"""Words for worlds in which something is so that is not so here."""

CONDITIONS = _words(
    """
    if when whenever unless except excepted excluded excepting excluding provided providing assuming whether lest
    depending
    wenn falls sofern soweit außer ausser ausgenommen ob solange sobald vorausgesetzt
    si sauf excepté lorsque quand tant
    cuando siempre mientras
    quando purché finché tranne
    caso enquanto
    indien mits tenzij wanneer zolang
    """
)
_REFLEXIVE_OR_IF = "se"
_USES_SE_AS_IF = _words("il è non che gli della di um uma o os não é foi são da do no na ao")

REFUTATIONS = _words(
    """
    false untrue wrong incorrect myth misconception retracted withdrawn disproved disproven debunked refuted
    discredited
    denied hoax mistaken fabricated unfounded baseless nonsense disputed questioned fake fiction joke overturned
    falsch unwahr widerlegt irrtum mythos erfunden unsinn zurückgezogen bestritten
    faux fausse démenti démentie réfuté réfutée mythe retirée retiré inexact
    falso falsa mentira mito desmentido desmentida retractado refutado
    smentito smentita ritirato confutato
    refutado retirado
    onjuist onwaar fabel weerlegd ingetrokken verzonnen
    """
)

# -- what may be left out ----------------------------------------------------------------------------------------------

FACTIVES = _words(
    """
    show shows showed shown found finds find know knows knew known report reports reported note notes noted confirm
    confirms confirmed demonstrate demonstrates demonstrated reveal reveals revealed establish established inform
    informs informed regret regrets learned realise realised recall recalled announce
    announced observe observed conclude concludes concluded fact prove proves proved proven true clear certain
    discovered
    ergab ergibt ergeben zeigt zeigte zeigen zeigten gezeigt fand fanden bestätigt bestätigte tatsache bewiesen
    montre montrent montré montrait fait confirme confirmé constaté révèle révélé prouvé
    muestra muestran mostró mostraron demostró demuestra hecho confirmó reveló
    mostra mostrano mostrato dimostra dimostrato fatto confermato rivelato
    mostram mostrou demonstra demonstrou confirmou fato facto revelou
    toont tonen toonde aangetoond bleek blijkt feit bevestigde
    """
)
"""Words after which "that ..." is so."""

SAYINGS = _words(
    """
    say says said saying tell tells told write writes wrote state states stated sagt sagte schrieb dit disait écrit
    dijo escribió disse scrisse escreveu zei schreef
    """
)
THAT = _words("that dass daß que qu che dat")

CONNECTIVES = _words(
    """
    however moreover furthermore therefore thus hence also still today now recently then finally indeed similarly
    meanwhile
    consequently additionally unfortunately fortunately surprisingly overall importantly notably conversely
    nevertheless
    nonetheless first firstly second secondly third thirdly later yesterday
    jedoch außerdem daher deshalb heute zudem ferner dagegen inzwischen schließlich leider
    cependant toutefois donc aujourdhui ainsi enfin pourtant puis
    además hoy luego finalmente
    inoltre tuttavia oggi quindi infine
    contudo porém hoje além
    echter bovendien vandaag daarom ook
    """
)
"""Adverbs that join a sentence to the one before and say nothing about it."""

CONJUNCTIONS = _words(
    """
    and but yet because since so whereas although though
    und aber sondern denn weil da obwohl doch während
    et mais car parce puisque
    y e pero porque pues sino
    ed ma perché poiché
    mas pois
    en maar want omdat hoewel
    但 而 且 与 和
    """
)
"""Words between a clause and the next one that let each be true alone."""

AND = _words("and und et y e ed en")

ARTICLES = _words(
    """
    the a an der die das den dem des ein eine einen einem einer eines le la les un une l los las una unos unas el il
    lo gli uno i o os um uma as het een this these those its his her their our my your unser mein notre mon nuestro
    nostro
    """
)

AUXILIARIES = _words(
    """
    is are was were be been being am has have had having do does did
    ist sind war waren wird werden wurde wurden worden hat haben hatte hatten gewesen
    est sont était étaient fut furent a ont avait avaient été
    es son era eran fue fueron ha han había habían sido está están
    è sono era erano fu furono hanno aveva avevano stato stata stati
    é são foi foram tem têm tinha tinham está estão sido
    is zijn was waren wordt worden werd werden heeft hebben had hadden
    """
)

RELATIVES = _words("who which whom whose qui dont où chi cui quien welche welcher welches")

PREPOSITIONS = _words(
    """
    of in on at by for from with to into onto over under about between among after before during until since through
    per
    than as like via near within beyond
    von vom in im am an auf bei mit zu zum zur für aus nach vor über unter zwischen durch gegen um bis seit als wie
    de du d en dans sur à au aux par pour avec chez entre vers depuis selon contre
    del al con por para desde hasta sobre según
    di da dal della dei delle degli nel nella nei nelle su sul sulla per con tra fra dello dell nell sull
    do dos da em no na nos nas ao aos por pelo pela com para
    van voor op bij uit naar tegen tussen met door aan te tot
    """
)

PRONOUNS = _words(
    """
    it he she they we i you there er sie es wir ich il elle ils elles on nous je él ella ellos lui lei hij zij ze wij
    we ele ela eles
    """
)

PLACE_AND_TIME = _words(
    """
    in on at during im am en au nel no na em op since seit depuis desde sinds after nach après después by for
    between from zwischen entre tra tussen
    """
)

PLAIN_ADJUNCTS = _words(
    """
    january february march april may june july august september october november december monday tuesday wednesday
    thursday friday saturday sunday spring summer autumn winter morning evening night north south east west laboratory
    trials trial study set addition total fact contrast particular general year years month months week weeks day days
    war sum price century end beginning then same last first town city country region world time towns cities
    countries regions areas
    januar februar märz mai juni juli oktober dezember montag dienstag mittwoch donnerstag freitag samstag sonntag
    jahr
    jahren monat monaten norden süden osten westen labor
    janvier février mars avril juin juillet août septembre octobre novembre décembre an ans mois lundi mardi
    enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre año años mes
    gennaio febbraio aprile maggio giugno luglio settembre ottobre dicembre anno anni
    janeiro fevereiro março maio junho julho setembro outubro novembro dezembro ano anos
    januari februari maart mei augustus jaar
    """
)
"""Nouns of adjuncts that only say where or when: a statement without "in May" is not another one."""


OF = _words("of von de di do du del van")
TO = _words("to bis à a al até tot")
OR = _words("or oder ou ofwel either")
CONTRASTS = _words(
    """
    but yet whereas while although though aber sondern jedoch doch mais pero sino ma maar mas porém 但
    """
)
QUANTITIES = _words(
    """
    few fewer little lot most only number peu wenig wenige weniger poco pocos pochi pouco poucos beetje weinig
    """
)
"""Words whose meaning an article turns: "a few", "few"."""

AFTER = _words("after nach après después dopo depois na")
TURNS = _words("actually however but yet not wrong no in tatsächlich doch aber mais pero ma mas maar")
"""First words of a sentence that turns against the one before."""

FRAME_LEADS = _words("let lets now please just so stellen stell stellt nehmen stel")
"""First words before one of `FRAME_VERBS`."""

SUBORDINATORS = _words(
    """
    once after before as until till given granted barring failing lest sobald nachdem bevor solange indem damit je dès
    après avant sous faute moyennant después antes hasta sin tras dopo prima appena depois assim zodra nadat voordat
    """
)
"""Words that open a clause or a phrase on which the next one depends."""

FICTIONAL = _words(
    """
    fictional fictitious imaginary hypothetical invented fiktiv fiktive fiktiven erfundene erfundenen fictif fictive
    imaginaire ficticio ficticia imaginario imaginaria fittizio immaginario immaginaria fictício fictícia imaginário
    fictief fictieve denkbeeldige
    """
)
INDIRECT_SPEECH = _words("sei seien habe werde komme könne müsse solle wolle dürfe gebe")
"""German forms for what somebody else said."""

SUBORDINATES = THAT | {"how", "why"}
INFINITIVE_MARKERS = _words("to zu te")
VERB_FIRST_CONDITIONS = _words("without should had were ohne sans")
ATTRIBUTIONS = _words("according laut zufolge selon según secondo segundo volgens")
UNLIKE = _words("contrary unlike entgegen anders contrairement")
NEGATIONS = _words(
    """
    not no never cannot dont doesnt didnt isnt wasnt cant couldnt failed disagree disagrees only nicht kein keine nie
    pas jamais no nunca non mai não nunca niet geen nooit 不 没
    """
)
DEMONSTRATIVES = _words(
    """
    this that these those it he she they das dies diese dieser sie er cela ceci ce cette ces il eso esto esta este ese
    esa questo questa ciò isso isto esta este essa esse dit deze die dat
    """
)
FRAME_VERBS = _words(
    """
    imagine suppose supposing assume picture pretend angenommen vor stell imaginez imaginons supposons supposez
    imagina imaginen imaginemos supongamos suponga immagina immaginate immaginiamo supponiamo suponha suponhamos
    verbeeld
    """
)
REFUTED_TITLES = REFUTATIONS | _words(
    """
    myths misconceptions hoaxes legends legend rumours rumors hypothetical fallacies mythen irrtümer mythes légendes
    mitos leyendas miti leggende lendas fabels claim claims satire
    """
)
MONTHS_LIKE_WORDS = _words("may mai will mars")
"""Words of the lists that are also a month or a name."""

_GERMAN = _words(
    """
    der die das und ist wird wurde nicht den dem ein eine einen von mit im zu auf für
    """
)


def is_german(words: frozenset[str]) -> bool:
    """Return whether these are words of a German sentence, whose nouns all begin with a capital letter."""
    return len(words & _GERMAN) > 1


def has_se_as_if(words: frozenset[str]) -> bool:
    """Return whether "se" among these words may be the Italian or Portuguese "if"."""
    return _REFLEXIVE_OR_IF in words and len(words & _USES_SE_AS_IF) > 1


def has_han_denial(text: str) -> bool:
    """Return whether a Chinese or Japanese text, a character a word, denies something."""
    return bool(_HAN_DENIAL.search(text))
