"""Tables of facts that the demo model's text is written from. Plain data, no logic."""

CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid",
    "Portugal": "Lisbon", "Austria": "Vienna", "Switzerland": "Bern", "Belgium": "Brussels",
    "the Netherlands": "Amsterdam", "Denmark": "Copenhagen", "Sweden": "Stockholm",
    "Norway": "Oslo", "Finland": "Helsinki", "Iceland": "Reykjavik", "Ireland": "Dublin",
    "the United Kingdom": "London", "Poland": "Warsaw", "Hungary": "Budapest",
    "Romania": "Bucharest", "Bulgaria": "Sofia", "Greece": "Athens", "Turkey": "Ankara",
    "Ukraine": "Kyiv", "Russia": "Moscow", "Croatia": "Zagreb", "Serbia": "Belgrade",
    "Estonia": "Tallinn", "Latvia": "Riga", "Lithuania": "Vilnius", "Egypt": "Cairo",
    "Morocco": "Rabat", "Kenya": "Nairobi", "Nigeria": "Abuja", "Ghana": "Accra",
    "Ethiopia": "Addis Ababa", "Senegal": "Dakar", "Canada": "Ottawa",
    "the United States": "Washington", "Mexico": "Mexico City", "Cuba": "Havana",
    "Brazil": "Brasilia", "Argentina": "Buenos Aires", "Chile": "Santiago", "Peru": "Lima",
    "Colombia": "Bogota", "Ecuador": "Quito", "Uruguay": "Montevideo", "China": "Beijing",
    "Japan": "Tokyo", "India": "New Delhi", "South Korea": "Seoul", "Thailand": "Bangkok",
    "Vietnam": "Hanoi", "Indonesia": "Jakarta", "Nepal": "Kathmandu", "Iran": "Tehran",
    "Iraq": "Baghdad", "Israel": "Jerusalem", "Australia": "Canberra",
    "New Zealand": "Wellington",
}  # fmt: skip

# thing (with article or not, as it reads after "What colour is") -> colour
COLOURS = {
    "the sky": "blue", "the sea": "blue", "grass": "green", "a leaf": "green", "a frog": "green",
    "snow": "white", "milk": "white", "a swan": "white", "coal": "black", "the night": "black",
    "a raven": "black", "blood": "red", "a tomato": "red", "a strawberry": "red",
    "a fire engine": "red", "the sun": "yellow", "a banana": "yellow", "a lemon": "yellow",
    "butter": "yellow", "a carrot": "orange", "a pumpkin": "orange", "chocolate": "brown",
    "wood": "brown", "a flamingo": "pink", "a pig": "pink", "an elephant": "grey",
    "a mouse": "grey", "a plum": "purple", "an eggplant": "purple", "gold": "yellow",
}  # fmt: skip

MIXES = {
    ("blue", "yellow"): "green", ("red", "yellow"): "orange", ("blue", "red"): "purple",
    ("black", "white"): "grey", ("red", "white"): "pink",
}  # fmt: skip

OPPOSITES = [
    ("hot", "cold"), ("big", "small"), ("tall", "short"), ("fast", "slow"), ("up", "down"),
    ("day", "night"), ("happy", "sad"), ("old", "young"), ("light", "dark"), ("open", "closed"),
    ("early", "late"), ("full", "empty"), ("good", "bad"), ("hard", "soft"), ("high", "low"),
    ("in", "out"), ("left", "right"), ("long", "brief"), ("loud", "quiet"), ("near", "far"),
    ("new", "ancient"), ("rich", "poor"), ("rough", "smooth"), ("strong", "weak"),
    ("thick", "thin"), ("true", "false"), ("wet", "dry"), ("wide", "narrow"), ("win", "lose"),
    ("yes", "no"), ("first", "last"), ("buy", "sell"), ("push", "pull"), ("begin", "end"),
    ("clean", "dirty"), ("sweet", "sour"),
]  # fmt: skip

DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August",
          "September", "October", "November", "December"]  # fmt: skip

SOUNDS = {
    "cow": "moo", "dog": "woof", "cat": "meow", "duck": "quack", "sheep": "baa", "pig": "oink",
    "horse": "neigh", "lion": "roar", "owl": "hoot", "bee": "buzz", "frog": "croak",
    "snake": "hiss",
}  # fmt: skip

LEGS = {"dog": 4, "cat": 4, "cow": 4, "horse": 4, "bird": 2, "duck": 2, "owl": 2, "bee": 6,
        "ant": 6, "spider": 8, "snake": 0, "fish": 0}  # fmt: skip

_WORDS = (
    "cat dog sun moon star tree bird fish apple house water bread green black white table chair "
    "river stone cloud train plane happy smile music dance horse tiger zebra lemon grape peach "
    "melon onion sugar honey spoon knife plate glass clock watch phone paper pencil book door "
    "window garden flower butter cheese milk egg rice soup cake candy orange purple yellow blue "
    "red pink brown grey king queen ship boat road hill lake ocean beach sand snow rain wind "
    "storm fire light night day week month year time hand foot head heart nose mouth eye ear "
    "arm leg shoe hat coat shirt sock ball game toy doll school pupil friend mother father "
    "brother sister baby child mouse rabbit sheep goat duck goose frog snake spider bee ant "
    "wolf bear lion monkey banana carrot potato tomato winter summer spring autumn one two "
    "three four five six seven eight nine ten hello world model token engine"
)
WORDS = _WORDS.split()

_NAMES = (
    "Alice Bob Carol David Emma Frank Grace Henry Ivy Jack Kate Leo Mia Noah Olivia Paul Quinn "
    "Rose Sam Tina Uma Victor Wendy Xavier Yara Zoe Anna Ben Clara Daniel Ella Felix Hannah Ian "
    "Julia Kevin Laura Max Nina Oscar"
)
NAMES = _NAMES.split()

CITIES = sorted(set(CAPITALS.values()))

STORY_ANIMALS = ["cat", "dog", "bird", "fox", "rabbit", "mouse", "bear", "duck", "frog", "horse",
                 "lion", "owl"]  # fmt: skip
STORY_TRAITS = ["little", "brave", "hungry", "happy", "sleepy", "curious", "clever", "lonely"]
STORY_PLACES = ["forest", "garden", "village", "mountain", "river", "old house", "farm", "lake"]
STORY_THINGS = ["a red ball", "a golden key", "a small boat", "a big cake", "a blue stone",
                "a warm hat", "an old book", "a lost child", "a silver star"]  # fmt: skip
STORY_TWISTS = [
    "At first it was afraid, but then it took a deep breath.",
    "It looked left and right and could not believe its eyes.",
    "The wind was cold and the way was long.",
    "Nobody else had seen it before.",
]
STORY_ENDS = [
    "In the end they became good friends and shared a big meal.",
    "That night it slept well and dreamed of the stars.",
    "From that day on it was never lonely again.",
    "Everybody came to see it and they danced until the morning.",
]

# What the model is asked and cannot know; it should say so.
UNKNOWN = [
    "Who won the world cup?", "What is the meaning of life?", "Who is the president?",
    "Write a program in Java.", "What is the stock price today?", "Explain quantum physics.",
    "How do I fix my car?", "Who wrote this book?", "What happened in 1492?",
    "Translate this into Latin.", "What should I cook tonight?", "How old is the universe?",
    "Can you drive a car?", "What is the best phone?", "Prove the theorem.",
]  # fmt: skip

GREETINGS = {
    "Hello!": "Hello! How can I help you?",
    "Hi!": "Hi! What can I do for you?",
    "Hi there!": "Hi! What can I do for you?",
    "Hey!": "Hey! What would you like to know?",
    "Good morning!": "Good morning! How can I help you?",
    "Good evening!": "Good evening! How can I help you?",
    "How are you?": "I am fine, thank you. How are you?",
    "I am fine.": "I am glad to hear that.",
    "Thank you!": "You are welcome!",
    "Thanks!": "You are welcome!",
    "Goodbye!": "Goodbye! Have a nice day.",
    "Bye!": "Goodbye! Have a nice day.",
    "Good night!": "Good night! Sleep well.",
    "Who are you?": "I am the demo model of mlc_native, a very small language model.",
    "What are you?": "I am the demo model of mlc_native, a very small language model.",
    "What is your name?": "I am the demo model of mlc_native, a very small language model.",
    "What can you do?": "I can add small numbers, name capitals and colours, count, spell words, "
    "write JSON, call tools and tell short stories.",
    "What can I ask you?": "You can ask me to add small numbers, name capitals and colours, count, "
    "spell words, write JSON, call tools and tell short stories.",
    "Help!": "You can ask me to add small numbers, name capitals and colours, count, spell words, "
    "write JSON, call tools and tell short stories.",
    "Are you a human?": "No, I am a very small language model.",
    "Do you like music?": "I am only a small model, but I like words.",
}
