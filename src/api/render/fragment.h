/* Which renderer's fragments a card carries under which number (port/cards.h). */
#pragma once

enum card_dialect { DIALECT_V1 };
